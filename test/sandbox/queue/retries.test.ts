import { expect, test } from 'vitest';
import { Reason } from '../../../src/core/errors.ts';
import type { ActiveResize } from '../../../src/sandbox/queue/resize-table.ts';
import { equalRanks, MOST_ABOVE, Retries } from '../../../src/sandbox/queue/retries.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

// A few promises settle one after the other between the end of an attempt and the end of the turns.
test.each(Array.from({ length: 12 }, (_, count) => count))(
  'KEP-1287: capacity that is freed %i promises after a retry of a deferred resize leads to another retry',
  async (count) => {
    const resize = { state: 'Deferred', reason: Reason.NODE_FULL, pod: {}, createdAt: 0 };
    const waiting = { resize, order: 0, stopTimer: () => undefined } as unknown as ActiveResize;
    let tries = 0;
    const retries = new Retries({
      table: { allActive: [waiting] },
      clock: { now: () => 0, wallTime: () => 0, after: () => () => undefined },
      rankOf: equalRanks,
      attempt: () => {
        tries += 1;
        if (tries === 1) void freeLater();
        return Promise.resolve();
      },
      isStopping: () => false,
    });
    const freeLater = async (): Promise<void> => {
      for (let settled = 0; settled < count; settled += 1) await Promise.resolve();
      retries.roomFreed();
    };
    retries.roomFreed();
    await expect.poll(() => tries, LONG_WAIT).toBe(2);
    await retries.idle();
    expect(tries).toBe(2);
  },
);

test('a resize that is due is tried after at most MOST_ABOVE resizes of higher rank', async () => {
  const waiting = Array.from({ length: 100 }, (_, order) => {
    const resize = { state: 'Deferred', reason: Reason.NODE_FULL, pod: { order } };
    return { resize, order, dueAt: 60_000, stopTimer: () => undefined } as unknown as ActiveResize;
  });
  const due = waiting.at(-1)!;
  const tried: number[] = [];
  const retries = new Retries({
    table: { allActive: waiting },
    clock: { now: () => 0, wallTime: () => 0, after: () => () => undefined },
    rankOf: (pod) => ({ priority: pod === due.resize.pod ? 0 : 1, isGuaranteed: false }),
    attempt: ({ order }) => Promise.resolve(void tried.push(order)),
    isStopping: () => false,
  });
  retries.due(due);
  await retries.idle();
  expect(tried).toEqual([...Array(MOST_ABOVE).keys(), due.order]);
});
