import { expect, test } from 'vitest';
import { countsIn } from './counts.ts';

test.each([
  ['the last line counts', 'tests: 1 passed, 1 failed\nmore\n3 passed, 0 failed\n', 0, { passed: 3, failed: 0 }],
  ['a name and the time may precede', 'crash:   7 s  all: 12 passed, 2 failed', 1, { passed: 12, failed: 2 }],
  ['a failing exit code counts as a failure', '3 passed, 0 failed', 70, { passed: 3, failed: 1 }],
  ['no line counts as a failure', 'ended', 0, { passed: 0, failed: 1 }],
  ['no exit code, after a signal, counts as a failure', '3 passed, 0 failed', undefined, { passed: 3, failed: 1 }],
])('reads the counts of a command from its output: %s', (_, output, code, counts) => {
  expect(countsIn(output, code)).toEqual(counts);
});
