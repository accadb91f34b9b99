import { expect, test } from 'vitest';
import { paced } from '../../../bench/fake/pace.ts';

test('a pace admits the given number of calls at a time, in order', async () => {
  const pace = paced(30, 2);
  const ended: number[] = [];
  const begin = performance.now();
  await Promise.all([0, 1, 2, 3, 4].map((index) => pace().then(() => ended.push(index))));
  // Three rounds of two. Timers are exact to a millisecond.
  expect(performance.now() - begin).toBeGreaterThan(3 * 30 - 3);
  expect(ended).toEqual([0, 1, 2, 3, 4]);
});
