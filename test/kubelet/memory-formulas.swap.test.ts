import { describe, expect, test } from 'vitest';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { swapAfterResize } from '../../src/kubelet/memory-formulas.ts';
import { mi } from '../support/quantities/mebibytes.ts';

const sizeOf = (count: number | undefined) => (count === undefined ? undefined : mi(count));
const amounts = (request: number | undefined, limit: number | undefined) => ({
  request: sizeOf(request),
  limit: sizeOf(limit),
});

type Pair = readonly [request?: number | undefined, limit?: number | undefined];

describe('memory.swap.max by kubelet', () => {
  test.each<[string, number | 'max', Pair, Pair, number]>([
    ['stays with the request', 64, [40, 200], [40, 80], 64],
    ['stays where the limit is removed', 64, [40, 200], [40], 64],
    ['follows a lower request', 64, [40, 200], [10, 80], 16],
    ['follows a higher request', 64, [40, 200], [80, 200], 128],
    ['is 0 where request and limit become equal', 64, [80, 200], [80, 80], 0],
    ['is 0 without request and limit', 64, [40, 200], [0], 0],
    ['stays 0', 0, [80, 80], [80, 80], 0],
    ['is 0 where it was 0 because request and limit were equal', 0, [80, 80], [40, 80], 0],
    ["is 0 where the present one is not kubelet's", 'max', [40, 200], [40, 80], 0],
    ['is 0 where the new request is not known', 64, [40, 200], [undefined, 80], 0],
    ['is 0 where the present request is not known', 64, [undefined, 200], [40, 80], 0],
    ['is 0 where no request led to the present one', 64, [0, 200], [40, 80], 0],
  ])('memory.swap.max %s', (_, now, before, after, expected) => {
    const present = now === 'max' ? now : mi(now);
    const [first, then] = [before, after].map(([request, limit]) => amounts(request, limit));
    expect(swapAfterResize(present, first!.request, then!)).toBe(mi(expected));
  });

  test('memory.swap.max is a whole number of bytes', () => {
    expect(swapAfterResize(bytes(100), bytes(3), { request: bytes(2), limit: undefined })).toBe(66);
  });

  test('memory.swap.max stays equal to the byte if the request does not change', () => {
    // Their product is above 2^53.
    const [now, request] = [bytes(132_842_737_383), bytes(73_588_192_309)];
    expect(swapAfterResize(now, request, { request, limit: undefined })).toBe(now);
  });
});
