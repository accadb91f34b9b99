import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { memoryHighOf, swapAfterResize, throttlingFactorOf } from '../../src/kubelet/memory-formulas.ts';
import { mi } from '../support/quantities/mebibytes.ts';

const PAGE = bytes(4096);
const amounts = (request: number, limit: number) => ({ request: mi(request), limit: mi(limit) });

describe('memory.high by kubelet', () => {
  // The expected values were computed by the expression of kubelet's source, in Go.
  test.each([
    [mi(64), mi(128), 0.9, 127_504_384],
    [mi(64), mi(128), 0.75, 117_440_512],
    [mi(48), mi(96), 0.9, 95_629_312],
    [0, mi(100), 0.9, 94_371_840],
    [100_000_000, 300_000_000, 0.9, 279_998_464],
    [100_000_000, 300_000_000, 0.75, 249_999_360],
    [1, 123_456_789, 0.9, 111_108_096],
  ])(
    'KEP-2570: memory.high is derived as in kubelet from a request of %i, a limit of %i and the factor %f',
    (request, limit, factor, high) => {
      expect(memoryHighOf({ request: bytes(request), limit: bytes(limit) }, factor, PAGE)).toBe(high);
    },
  );

  test('memory.high is absent if the request equals the limit, or if memory.high would not exceed the request', () => {
    expect(memoryHighOf(amounts(64, 64), 0.9, PAGE)).toBeUndefined();
    expect(memoryHighOf(amounts(0, 0), 0.9, PAGE)).toBeUndefined();
    expect(memoryHighOf({ request: mi(64), limit: bytes(mi(64) + 4096) }, 0.9, PAGE)).toBeUndefined();
  });

  test('memory.high is a whole number of pages of any size, between request and limit', () => {
    const size = fc.integer({ min: 1, max: 2 ** 40 }).map(bytes);
    const pages = fc.constantFrom(4096, 16_384, 65_536).map(bytes);
    fc.assert(
      fc.property(size, size, fc.integer({ min: 1, max: 100 }), pages, (request, more, percent, page) => {
        const limit = bytes(request + more);
        const high = memoryHighOf({ request, limit }, percent / 100, page);
        if (high === undefined) return;
        expect(high % page).toBe(0);
        expect(high).toBeGreaterThan(request);
        expect(high).toBeLessThanOrEqual(limit);
        expect(request + (more * percent) / 100 - high).toBeLessThan(page + 1);
      }),
    );
  });
});

describe('the factor of a memory.high', () => {
  test('the factor computed from memory.high is the one that kubelet used to set it', () => {
    const request = fc.integer({ min: 0, max: 1000 });
    fc.assert(
      fc.property(
        request,
        fc.integer({ min: 1, max: 1000 }),
        fc.integer({ min: 1, max: 100 }),
        (from, more, percent) => {
          const all = amounts(from, from + more);
          const high = memoryHighOf(all, percent / 100, PAGE);
          if (high !== undefined) expect(throttlingFactorOf(high, all, PAGE)).toBe(percent / 100);
        },
      ),
    );
  });

  test('the factor is unknown if no factor leads to memory.high, or if several factors do', () => {
    expect(throttlingFactorOf(bytes(mi(100) + 4096), amounts(64, 128), PAGE)).toBeUndefined();
    expect(throttlingFactorOf(mi(63), amounts(64, 128), PAGE)).toBeUndefined();
    const narrow = { request: mi(64), limit: bytes(mi(64) + 20 * 4096) };
    expect(throttlingFactorOf(bytes(mi(64) + 4096), narrow, PAGE)).toBeUndefined();
    expect(throttlingFactorOf(bytes(mi(64) + 18 * 4096), narrow, PAGE)).toBe(0.9);
  });
});

describe('memory.swap.max by kubelet', () => {
  const sizeOf = (count: number | undefined) => (count === undefined ? undefined : mi(count));
  const amounts = (request: number | undefined, limit: number | undefined) => ({
    request: sizeOf(request),
    limit: sizeOf(limit),
  });

  type Pair = readonly [request?: number | undefined, limit?: number | undefined];

  test.each<[string, number | 'max', Pair, Pair, number]>([
    ['stays if the request stays', 64, [40, 200], [40, 80], 64],
    ['stays if the limit is removed', 64, [40, 200], [40], 64],
    ['follows a lower request', 64, [40, 200], [10, 80], 16],
    ['follows a higher request', 64, [40, 200], [80, 200], 128],
    ['is 0 if request and limit become equal', 64, [80, 200], [80, 80], 0],
    ['is 0 without request and limit', 64, [40, 200], [0], 0],
    ['stays 0', 0, [80, 80], [80, 80], 0],
    ['is 0 if it was 0 because request and limit were equal', 0, [80, 80], [40, 80], 0],
    ["is 0 if the present value is not kubelet's", 'max', [40, 200], [40, 80], 0],
    ['is 0 if the new request is unknown', 64, [40, 200], [undefined, 80], 0],
    ['is 0 if the present request is unknown', 64, [undefined, 200], [40, 80], 0],
    ['is 0 if no request results in the present value', 64, [0, 200], [40, 80], 0],
  ])('memory.swap.max %s', (_, now, before, after, expected) => {
    const present = now === 'max' ? now : mi(now);
    const [first, then] = [before, after].map(([request, limit]) => amounts(request, limit));
    expect(swapAfterResize(present, first!.request, then!)).toBe(mi(expected));
  });

  test('memory.swap.max is a whole number of bytes', () => {
    expect(swapAfterResize(bytes(100), bytes(3), { request: bytes(2), limit: undefined })).toBe(66);
  });

  test('memory.swap.max stays equal to the byte if the request does not change', () => {
    // The product of these numbers is above 2^53.
    const [now, request] = [bytes(132_842_737_383), bytes(73_588_192_309)];
    expect(swapAfterResize(now, request, { request, limit: undefined })).toBe(now);
  });
});
