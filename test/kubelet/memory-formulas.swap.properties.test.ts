import fc from 'fast-check';
import { expect, test } from 'vitest';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { swapAfterResize } from '../../src/kubelet/memory-formulas.ts';
import { kubeletSwap, type Memory } from '../support/resize/kubelet-pods.ts';

/** Pods with LimitedSwap: the expected swap limit after a resize is never above the one that kubelet sets. */

const size = fc.integer({ min: 1, max: 4000 }).map((count) => count * 1_000_003);
const memory: fc.Arbitrary<Memory & { readonly request: number }> = fc
  .record({ request: size, more: fc.option(size, { nil: undefined }), isEqual: fc.boolean() })
  .map(({ request, more, isEqual }) => {
    if (more === undefined) return { request, limit: undefined };
    return { request, limit: isEqual ? request : request + more };
  });

test('KEP-1287: the swap limit expected after a resize equals that of kubelet except for rounding, or is 0 if it was 0', () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(memory, memory, (before, after) => {
      const now = kubeletSwap(before);
      const found = swapAfterResize(bytes(now), bytes(before.request), {
        request: bytes(after.request),
        limit: after.limit === undefined ? undefined : bytes(after.limit),
      });
      const wanted = kubeletSwap(after);
      // kubelet computes with floating point.
      expect(found).toBeLessThanOrEqual(wanted + 1);
      if (now > 0) expect(found).toBeGreaterThanOrEqual(wanted - Math.ceil(after.request / before.request) - 1);
      else expect(found).toBe(0);
      seen.add(
        wanted === 0 ? 'none' : now === 0 ? 'not known' : wanted < now ? 'less' : wanted > now ? 'more' : 'same',
      );
    }),
    { numRuns: 3000 },
  );
  expect([...seen]).toEqual(expect.arrayContaining(['none', 'not known', 'less', 'more']));
});
