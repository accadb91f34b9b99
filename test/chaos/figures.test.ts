import { expect, test } from 'vitest';
import { ChaosCounter, figuresText } from './figures.ts';

test('calls are counted by kind and outcome, and memory by its highest value', () => {
  const counter = new ChaosCounter();
  const call = { what: 'a call', message: '' };
  counter.add('EIO', [{ ...call, kind: 'resize', code: 9 }], 90.2);
  counter.add('EIO', [{ ...call, kind: 'resize', code: 0 }], 80);
  counter.add('EMFILE', [{ ...call, kind: 'passed', code: 14 }], 70);
  expect(figuresText({ ...counter.figures, seconds: 5 })).toBe(
    '3 rounds of 2 faults in 5 s: 2 resizes (1 failed), 1 forwarded calls (1 failed), at most 91 MB resident after a round',
  );
});
