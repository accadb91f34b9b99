import { expect, test } from 'vitest';
import { ChaosCounter, figuresText } from './figures.ts';
import { badCalls } from './invariants.ts';
import type { Call } from './load.ts';
import { FaultCounter, NO_FAULTS } from './preload/rules.ts';
import { Random, schedule } from './random.ts';

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

const resize: Call = { kind: 'resize', what: 'ResizePod', code: 9, message: 'ENOSPC: no space left' };
const passed: Call = { kind: 'passed', what: 'Version', code: 14, message: 'UNAVAILABLE' };

test('KEP-1287: the chaos test accepts a failed call only if the injected fault allows it', () => {
  const counts = (['nothing', 'resizes', 'all'] as const).map(
    (fails) => badCalls([resize, passed], { fails, shows: 'run' }).length,
  );
  expect(counts).toEqual([2, 1, 0]);
  expect(badCalls([{ ...passed, code: 0, message: '' }], { fails: 'nothing', shows: 'run' })).toEqual([]);
});

test('KEP-1287: the chaos test never accepts a call without an answer, but accepts a rejection after the deadline', () => {
  const message = '4 DEADLINE_EXCEEDED: Deadline exceeded after 60.001s';
  expect(badCalls([{ ...passed, code: 4, message }], { fails: 'all', shows: 'run' })).toEqual([
    `no answer: Version: code 4: ${message}`,
  ]);
  const rejected = { ...resize, code: 4, message: '4 DEADLINE_EXCEEDED: pod default/db: deadline exceeded before: x' };
  expect(badCalls([rejected], { fails: 'resizes', shows: 'run' })).toEqual([]);
});

test('KEP-1287: the chaos test fails if the injected fault has not occurred', () => {
  expect(badCalls([resize], { fails: 'all', shows: /ENOSPC/ })).toEqual([]);
  expect(badCalls([passed], { fails: 'all', shows: /ENOSPC/ })).toEqual([
    'no call has failed with /ENOSPC/: the fault has not occurred',
  ]);
});

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

const faults = ['a', 'b', 'c', 'd', 'e'];

test('the same seed repeats the schedule, and another one does not', () => {
  expect(schedule(faults, 50, 7)).toEqual(schedule(faults, 50, 7));
  expect(schedule(faults, 50, 7)).not.toEqual(schedule(faults, 50, 8));
});

test('each fault occurs once before any occurs again', () => {
  const rounds = schedule(faults, 12, 3);
  expect(rounds).toHaveLength(12);
  expect(rounds.slice(0, 5).toSorted()).toEqual(faults);
  expect(rounds.slice(5, 10).toSorted()).toEqual(faults);
});

test('random integers include both bounds and stay within them', () => {
  const random = new Random(1);
  const found = new Set(Array.from({ length: 500 }, () => random.integer(2, 5)));
  expect([...found].toSorted()).toEqual([2, 3, 4, 5]);
});
