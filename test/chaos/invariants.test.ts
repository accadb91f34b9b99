import { expect, test } from 'vitest';
import { badCalls } from './invariants.ts';
import type { Call } from './load.ts';

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
