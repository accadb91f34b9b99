import { expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { swapAfter } from '../../../src/sandbox/admission/swap-after.ts';

test.each<[string, string, number | undefined]>([
  ['max', '0', 0],
  ['max', '1048576', MiB],
  ['2097152', '1048576', MiB],
  ['1048576', '2097152', undefined],
  ['1048576', 'max', undefined],
  ['max', 'max', undefined],
  ['1048576', '1048576', undefined],
  ['max', '16M', 0],
  ['16M', '1048576', MiB],
  ['16M', '16M', undefined],
])('swapAfter returns memory.swap.max only if it is lowered: from %s to %s', (from, to, expected) => {
  expect(swapAfter('/pod', { from, to })).toEqual(expected === undefined ? undefined : new Map([['/pod', expected]]));
});

test('swapAfter returns nothing without a change of memory.swap.max', () => {
  expect(swapAfter('/pod', undefined)).toBeUndefined();
});
