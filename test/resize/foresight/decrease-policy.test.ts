import fc from 'fast-check';
import { expect, test } from 'vitest';
import { assessDecrease, backoffMs, idleMs, marginOf, restMs } from '../../../src/resize/foresight/decrease-policy.ts';
import { bytes } from '../../../src/core/quantities/index.ts';
import { cases } from '../../support/property-cases.ts';
import { MiB } from '../../support/resize/pods.ts';

test('the margin is the larger of 5 % and 8 MiB', () => {
  expect([64, 160, 1000].map((mebibytes) => marginOf(bytes(mebibytes * MiB)) / MiB)).toEqual([8, 8, 50]);
});

test('assessDecrease reclaims to the margin below the limit for any usage, unless unreclaimable memory prevents it', () => {
  const size = fc.integer({ min: 0, max: 2 ** 40 });
  fc.assert(
    fc.property(size, size, fc.nat(100), (limit, current, percent) => {
      const unreclaimable = bytes(Math.floor((current * percent) / 100));
      const verdict = assessDecrease(bytes(limit), { current: bytes(current), unreclaimable });
      if (current < limit) expect(verdict.kind).toBe('fits');
      else if (verdict.kind === 'reclaim') {
        expect(verdict.goal).toBe(limit - marginOf(bytes(limit)));
        expect(unreclaimable).toBeLessThan(verdict.goal);
      } else {
        expect(verdict.kind).toBe('stuck');
        expect(unreclaimable).toBeGreaterThanOrEqual(limit - marginOf(bytes(limit)));
      }
    }),
    cases(500),
  );
});

test('backoff and idle times grow to a maximum', () => {
  expect([1, 2, 3, 5, 6, 100].map(backoffMs)).toEqual([1000, 2000, 4000, 16_000, 30_000, 30_000]);
  expect([1, 2, 5, 8].map(idleMs)).toEqual([50, 100, 800, 800]);
  expect([restMs(64 * MiB, 7), restMs(MiB, 40), restMs(0, 0)]).toEqual([125, 120, 0]);
});
