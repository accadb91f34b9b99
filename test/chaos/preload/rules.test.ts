import { expect, test } from 'vitest';
import { FaultCounter, NO_FAULTS } from './rules.ts';

test('a rule fails each nth call of its kind below its path, and no other', () => {
  const faults = { rules: [{ calls: ['open', 'read'], path: '^/state/', code: 'EIO', every: 3 }], clockMs: 0 };
  const counter = new FaultCounter();
  const codes = Array.from({ length: 6 }, () => counter.codeOf(faults, 'open', '/state/a'));
  expect(codes).toEqual([undefined, undefined, 'EIO', undefined, undefined, 'EIO']);
  const only = { rules: [{ calls: ['sync'], path: '^/state/', code: 'EIO', every: 1 }], clockMs: 0 };
  expect(counter.codeOf(only, 'sync', '/state/a')).toBe('EIO');
  expect([counter.codeOf(only, 'open', '/state/a'), counter.codeOf(only, 'sync', '/other')]).toEqual([
    undefined,
    undefined,
  ]);
  expect(counter.codeOf(NO_FAULTS, 'sync', '/state/a')).toBeUndefined();
});
