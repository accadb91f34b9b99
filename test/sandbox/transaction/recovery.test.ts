import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { Recovery } from '../../../src/sandbox/transaction/recovery.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** A recovery whose first attempts return `outcomes` in order, and whose later attempts succeed. */
function recovering(...outcomes: boolean[]) {
  const clock = new FakeClock();
  const tries: number[] = [];
  const recovery = new Recovery(() => {
    tries.push(clock.now());
    return Promise.resolve(outcomes.shift() ?? true);
  }, clock);
  const start = clock.now();
  return { recovery, clock, times: () => tries.map((at) => at - start) };
}

/** Advances the clock timer by timer, and runs what each timer starts. */
async function through(clock: FakeClock, ms: number): Promise<void> {
  const end = clock.now() + ms;
  for (let { next } = clock; next !== undefined && clock.now() + next <= end; { next } = clock) {
    clock.pass(next);
    await setImmediate();
  }
  clock.pass(end - clock.now());
}

describe('recovery after the backend connects', () => {
  test('recovery runs once if it succeeds', async () => {
    const { recovery, clock, times } = recovering(true);
    await recovery.begin();
    await through(clock, 60_000);
    expect(times()).toEqual([0]);
  });

  test('recovery is retried with a growing delay until it succeeds', async () => {
    const { recovery, clock, times } = recovering(...Array.from({ length: 8 }, () => false));
    await recovery.begin();
    await through(clock, 60_000);
    expect(times()).toEqual([0, 100, 300, 700, 1500, 3100, 6300, 11_300, 16_300]);
  });

  test('recovery starts again with the next connection, which ends the retries of the previous one', async () => {
    const { recovery, clock, times } = recovering(false, false, true);
    await recovery.begin();
    await through(clock, 50);
    await recovery.begin();
    await through(clock, 60_000);
    expect(times()).toEqual([0, 50, 150]);
  });

  test('KEP-1287: recovery is retried in the background until a transaction has ended, once for several transactions', async () => {
    const { recovery, clock, times } = recovering(true, false, true);
    await recovery.begin();
    recovery.retry();
    recovery.retry();
    await through(clock, 60_000);
    expect(times()).toEqual([0, 5000, 10_000]);
    expect(clock.next).toBeUndefined();
  });

  test('KEP-1287: recovery is repeated if a transaction could not end while a recovery ran', async () => {
    const clock = new FakeClock();
    const ends: ((isDone: boolean) => void)[] = [];
    const recovery = new Recovery(() => new Promise((resolve) => ends.push(resolve)), clock);
    const begun = recovery.begin();
    recovery.retry();
    ends[0]?.(true);
    await begun;
    expect([ends.length, clock.next]).toEqual([1, 5000]);
    await through(clock, 5000);
    ends[1]?.(true);
    await setImmediate();
    expect([ends.length, clock.next]).toEqual([2, undefined]);
  });

  test('a request for a recovery uses the pending retry, and no recovery begins after close', async () => {
    const { recovery, clock, times } = recovering(false, true);
    await recovery.begin();
    recovery.retry();
    await through(clock, 60_000);
    expect(times()).toEqual([0, 100]);
    recovery.close();
    recovery.retry();
    expect(clock.next).toBeUndefined();
  });

  test('recovery is not retried after close', async () => {
    const { recovery, clock, times } = recovering(false, false);
    await recovery.begin();
    recovery.close();
    await through(clock, 60_000);
    expect(times()).toEqual([0]);
  });
});
