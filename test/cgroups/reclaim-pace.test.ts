import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FIRST_CHUNK, goalOf, nextChunk, pauseAfter } from '../../src/cgroups/reclaim-pace.ts';
import { bytes } from '../../src/units/index.ts';

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
