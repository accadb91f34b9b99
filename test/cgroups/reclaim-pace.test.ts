import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FIRST_CHUNK, Growth, goalOf, hasEnoughMargin, nextChunk, pauseAfter } from '../../src/cgroups/reclaim-pace.ts';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';

describe('the goal of a reclaim', () => {
  test.each([
    [64 * MiB, 0, 56 * MiB],
    [64 * MiB, 44 * MiB, 56 * MiB],
    // Half-way between the target and unreclaimable memory.
    [64 * MiB, 60 * MiB, 62 * MiB],
    [64 * MiB, 64 * MiB - 1, 64 * MiB - 1],
    [2 ** 40, 0, 2 ** 40 - 256 * MiB],
  ])('the goal of a reclaim for a target of %d bytes with %d unreclaimable is %d', (target, unreclaimable, goal) => {
    expect(goalOf(bytes(target), bytes(unreclaimable))).toBe(goal);
  });

  test('the goal of a reclaim is below the target and never below unreclaimable memory', () => {
    const size = fc.integer({ min: 1, max: 2 ** 48 });
    fc.assert(
      fc.property(size, size, (a, b) => {
        fc.pre(a !== b);
        const [unreclaimable, target] = a < b ? [a, b] : [b, a];
        const goal = goalOf(bytes(target), bytes(unreclaimable));
        expect(goal).toBeLessThan(target);
        expect(goal).toBeGreaterThanOrEqual(unreclaimable);
      }),
    );
  });
});

describe('hasEnoughMargin', () => {
  test.each([
    [64 * MiB, 56 * MiB, true],
    [64 * MiB, 57 * MiB, true],
    [64 * MiB, 58 * MiB, false],
    [96 * MiB, 92 * MiB, false],
    [1024 * MiB, 970 * MiB, true],
    [1024 * MiB, 990 * MiB, false],
    // An eighth is enough for small targets, where throttling does not suffice.
    [8 * MiB, 7 * MiB, true],
    [8 * MiB, 7.5 * MiB, false],
  ])('hasEnoughMargin for a target of %d bytes with %d in use is %s', (target, used, expected) => {
    expect(hasEnoughMargin(bytes(target), bytes(used))).toBe(expected);
  });
});

describe('the growth of usage', () => {
  const looks = (...seen: readonly (readonly [at: number, mebibytes: number])[]): boolean[] => {
    const growth = new Growth();
    return seen.map(([at, mebibytes]) => growth.fits(bytes(mebibytes * MiB), (64 - mebibytes) * MiB, at));
  };

  test('accepts the growth of usage at the earliest after 200 ms of observation', () => {
    expect(looks([0, 60], [10, 60], [199, 60], [200, 60])).toEqual([false, false, false, true]);
  });

  test('rejects growth of usage that would reach the target within two seconds', () => {
    expect(looks([0, 60], [200, 60.25])).toEqual([false, true]);
    expect(looks([0, 60], [200, 60.5])).toEqual([false, false]);
    expect(looks([0, 60], [1000, 61])).toEqual([false, true]);
  });

  test('accepts usage that has stopped growing since the previous assessment', () => {
    expect(looks([0, 50], [200, 60], [300, 60], [400, 60])).toEqual([false, false, false, true]);
  });

  test('accepts usage that shrinks', () => {
    expect(looks([0, 62], [300, 60])).toEqual([false, true]);
  });
});

describe('the chunk of a reclaim', () => {
  test('the chunk of a reclaim grows with short writes and shrinks with long writes, within bounds', () => {
    expect(nextChunk(FIRST_CHUNK, 2)).toBe(2 * FIRST_CHUNK);
    expect(nextChunk(FIRST_CHUNK, 30)).toBe(FIRST_CHUNK);
    expect(nextChunk(FIRST_CHUNK, 300)).toBe(FIRST_CHUNK / 2);
    let chunk = FIRST_CHUNK;
    for (let round = 0; round < 50; round += 1) chunk = nextChunk(chunk, 1);
    expect(chunk).toBe(1024 * MiB);
    for (let round = 0; round < 50; round += 1) chunk = nextChunk(chunk, 1000);
    expect(chunk).toBe(MiB);
  });
});

test('pauses between reclaims grow to 200 ms', () => {
  expect([0, 1, 2, 3, 4, 5, 1000].map(pauseAfter)).toEqual([10, 20, 40, 80, 160, 200, 200]);
});
