import fc from 'fast-check';
import { expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { isBelowUnreclaimable } from '../../../src/sandbox/admission/memory-in-use.ts';
import { assessDecrease, backoffMs, stuckFrom } from '../../../src/sandbox/foresight/decrease-policy.ts';
import { cases } from '../../support/property-cases.ts';

test('a decrease is stuck with less than the larger of 1/64 and 2 MiB between the limit and unreclaimable memory', () => {
  expect([64, 128, 1024].map((mebibytes) => stuckFrom(bytes(mebibytes * MiB)) / MiB)).toEqual([62, 126, 1008]);
  expect(stuckFrom(bytes(MiB))).toBe(0);
});

test('KEP-1287: a decrease is tried unless unreclaimable memory is close to the limit', () => {
  const size = fc.integer({ min: 0, max: 2 ** 40 });
  fc.assert(
    // Covers unreclaimable memory above the usage, because memory in swap may return.
    fc.property(size, size, fc.nat(200), (limit, current, percent) => {
      const unreclaimable = bytes(Math.floor((current * percent) / 100));
      const assessment = assessDecrease(bytes(limit), { current: bytes(current), unreclaimable });
      // The shim rejects kubelet's update by this rule.
      if (isBelowUnreclaimable(bytes(limit), 'max', { unreclaimable })) expect(assessment).toBe('stuck');
      else if (current < limit) expect(assessment).toBe('fits');
      else expect(assessment).toBe(unreclaimable < stuckFrom(bytes(limit)) ? 'blocked' : 'stuck');
    }),
    cases(500),
  );
});

test('backoff grows to 5 s in the first minute, and to 30 s after it', () => {
  expect([1, 2, 3, 4, 100].map((times) => backoffMs(times, 59_999))).toEqual([1000, 2000, 4000, 5000, 5000]);
  expect([1, 5, 6, 100].map((times) => backoffMs(times, 60_000))).toEqual([1000, 16_000, 30_000, 30_000]);
});
