import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FIRST_CHUNK,
  Growth,
  goalOf,
  hasEnoughMargin,
  nextChunk,
  pauseAfter,
} from '../../../src/cgroups/reclaim/pace.ts';
import { bytes } from '../../../src/core/quantities/index.ts';

const MI = 1024 * 1024;

describe('the goal', () => {
  it.each([
    [64 * MI, 0, 56 * MI],
    [64 * MI, 44 * MI, 56 * MI],
    // Half-way to what cannot be reclaimed.
    [64 * MI, 60 * MI, 62 * MI],
    [64 * MI, 64 * MI - 1, 64 * MI - 1],
    [1024 * 1024 * MI, 0, 1024 * 1024 * MI - 256 * MI],
  ])('for %d bytes with %d that cannot be reclaimed is %d', (target, unreclaimable, goal) => {
    expect(goalOf(bytes(target), bytes(unreclaimable))).toBe(goal);
  });

  it('is under the target, and never under what cannot be reclaimed', () => {
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

describe('room for what a process takes until the limit is there', () => {
  it.each([
    [64 * MI, 56 * MI, true],
    [64 * MI, 57 * MI, true],
    [64 * MI, 58 * MI, false],
    [96 * MI, 92 * MI, false],
    [1024 * MI, 970 * MI, true],
    [1024 * MI, 990 * MI, false],
    // An eighth is enough where throttling would not be.
    [8 * MI, 7 * MI, true],
    [8 * MI, 7.5 * MI, false],
  ])('under %d bytes with %d in use: %s', (target, used, expected) => {
    expect(hasEnoughMargin(bytes(target), bytes(used))).toBe(expected);
  });
});

describe('growth', () => {
  const looks = (...seen: readonly (readonly [at: number, mebibytes: number])[]): boolean[] => {
    const growth = new Growth();
    return seen.map(([at, mebibytes]) => growth.fits(bytes(mebibytes * MI), (64 - mebibytes) * MI, at));
  };

  it('is judged once it has been watched for a fifth of a second', () => {
    expect(looks([0, 60], [10, 60], [199, 60], [200, 60])).toEqual([false, false, false, true]);
  });

  it('that would fill the room within two seconds does not fit', () => {
    expect(looks([0, 60], [200, 60.25])).toEqual([false, true]);
    expect(looks([0, 60], [200, 60.5])).toEqual([false, false]);
    expect(looks([0, 60], [1000, 61])).toEqual([false, true]);
  });

  it('is that since the last look that was judged: a process that has stopped fits', () => {
    expect(looks([0, 50], [200, 60], [300, 60], [400, 60])).toEqual([false, false, false, true]);
  });

  it('may be negative', () => {
    expect(looks([0, 62], [300, 60])).toEqual([false, true]);
  });
});

describe('the chunk', () => {
  it('grows while writes are short, shrinks when they are long, within bounds', () => {
    expect(nextChunk(FIRST_CHUNK, 2)).toBe(2 * FIRST_CHUNK);
    expect(nextChunk(FIRST_CHUNK, 30)).toBe(FIRST_CHUNK);
    expect(nextChunk(FIRST_CHUNK, 300)).toBe(FIRST_CHUNK / 2);
    let chunk = FIRST_CHUNK;
    for (let round = 0; round < 50; round += 1) chunk = nextChunk(chunk, 1);
    expect(chunk).toBe(1024 * MI);
    for (let round = 0; round < 50; round += 1) chunk = nextChunk(chunk, 1000);
    expect(chunk).toBe(MI);
  });
});

it('pauses grow to a fifth of a second', () => {
  expect([0, 1, 2, 3, 4, 5, 1000].map(pauseAfter)).toEqual([10, 20, 40, 80, 160, 200, 200]);
});
