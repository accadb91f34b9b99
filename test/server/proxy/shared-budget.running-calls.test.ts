import { describe, expect, test } from 'vitest';
import { type OwnCalls, RunningCalls } from '../../../src/server/proxy/shared-budget.ts';

const connection = (): OwnCalls => ({ all: 0, compressed: 0 });

describe('places of handled calls', () => {
  test('places of handled calls are reserved for each connection, and shared beyond that', () => {
    const calls = new RunningCalls({ all: 3, reserved: 2, compressed: 16 });
    const greedy = connection();
    const taken = Array.from({ length: 7 }, () => calls.take(greedy, false));
    expect(taken).toEqual([true, true, true, true, true, false, false]);
    const other = connection();
    expect([calls.take(other, false), calls.take(other, false), calls.take(other, false)]).toEqual([true, true, false]);
    calls.release(greedy, false);
    expect(calls.take(other, false)).toBe(true);
    expect(calls.all.beyond).toBe(3);
  });

  test('one connection does not take all places of calls with compressed messages', () => {
    const calls = new RunningCalls({ all: 1024, reserved: 4, compressed: 16 });
    const takeAll = (own: OwnCalls): number => {
      let count = 0;
      while (calls.take(own, true)) count += 1;
      return count;
    };
    const first = connection();
    expect([takeAll(first), takeAll(connection()), takeAll(connection())]).toEqual([8, 4, 2]);
    // A call without compressed messages needs none of these places.
    expect(calls.take(first, false)).toBe(true);
    expect(calls.compressed.total).toBe(14);
  });

  test('places of handled calls are free again when their calls have ended', () => {
    const calls = new RunningCalls({ all: 2, reserved: 1, compressed: 4 });
    const own = connection();
    for (let round = 0; round < 100; round += 1) {
      expect([calls.take(own, true), calls.take(own, true), calls.take(own, true)]).toEqual([true, true, false]);
      calls.release(own, true);
      calls.release(own, true);
    }
    expect([own, calls.all.beyond, calls.compressed.total]).toEqual([{ all: 0, compressed: 0 }, 0, 0]);
  });
});
