import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { CallStarts, STARTS_COST } from '../../../src/server/proxy/call-starts.ts';

/** Returns calls of a connection that record their starts. */
function waiting(name: string, sizes: number[], started: string[]) {
  return {
    get nextBytes() {
      return sizes[0];
    },
    startNext: () => void started.push(`${name}${sizes.shift()}`),
  };
}

test('short calls start in one turn up to a bound, which the next turn renews', async () => {
  const starts = new CallStarts();
  let count = 0;
  while (starts.take(0)) count += 1;
  expect(count).toBe(STARTS_COST / 1024);
  await nextTurn();
  expect(starts.take(0)).toBe(true);
});

test('a long call starts in a turn of its own', async () => {
  const starts = new CallStarts();
  expect([starts.take(10_000_000), starts.take(0)]).toEqual([true, false]);
  await nextTurn();
  expect([starts.take(0), starts.take(STARTS_COST)]).toEqual([true, false]);
});

test('connections take turns, and no call starts before those that wait', async () => {
  const starts = new CallStarts();
  const started: string[] = [];
  starts.wait(waiting('a', [1, 2, 50_000], started));
  starts.wait(waiting('b', [1, 60_000], started));
  expect(starts.take(0)).toBe(false);
  await nextTurn();
  expect(started).toEqual(['a1', 'b1', 'a2']);
  await nextTurn();
  expect(started.splice(3)).toEqual(['b60000']);
  expect(starts.take(0)).toBe(false);
  await nextTurn();
  expect(started.splice(3)).toEqual(['a50000']);
  await nextTurn();
  expect(starts.take(0)).toBe(true);
});

test('a connection without calls to start leaves the queue', async () => {
  const starts = new CallStarts();
  starts.wait(waiting('a', [], []));
  await nextTurn();
  expect(starts.take(0)).toBe(true);
});
