import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { FakeClock } from '../../support/resize/fake-resizes.ts';
import { Recovery } from '../../../src/resize/execute/recovery.ts';

/** A recovery of which each try ends as `outcomes` say; then well. */
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

/** Lets so much time pass, timer by timer, and what each of them begins go on. */
async function through(clock: FakeClock, ms: number): Promise<void> {
  const end = clock.now() + ms;
  for (let { next } = clock; next !== undefined && clock.now() + next <= end; { next } = clock) {
    clock.pass(next);
    await setImmediate();
  }
  clock.pass(end - clock.now());
}

describe('recovery after a connect', () => {
  test('is tried once when it works', async () => {
    const { recovery, clock, times } = recovering(true);
    await recovery.begin();
    await through(clock, 60_000);
    expect(times()).toEqual([0]);
  });

  test('is tried again until it works, ever more seldom: a containerd that comes up does not answer at once', async () => {
    const { recovery, clock, times } = recovering(...Array.from({ length: 8 }, () => false));
    await recovery.begin();
    await through(clock, 60_000);
    expect(times()).toEqual([0, 100, 300, 700, 1500, 3100, 6300, 11_300, 16_300]);
  });

  test('begins anew with the next connection, and the tries of the one before end', async () => {
    const { recovery, clock, times } = recovering(false, false, true);
    await recovery.begin();
    await through(clock, 50);
    await recovery.begin();
    await through(clock, 60_000);
    expect(times()).toEqual([0, 50, 150]);
  });

  test('is not tried after a close', async () => {
    const { recovery, clock, times } = recovering(false, false);
    await recovery.begin();
    recovery.close();
    await through(clock, 60_000);
    expect(times()).toEqual([0]);
  });
});
