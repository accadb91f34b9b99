import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';

let node: FakeKubeletNode;
beforeEach(() => {
  node = new FakeKubeletNode();
});
afterEach(() => node.reclaimer.close());

const events = () => node.counters.snapshot().foresight;

/** Returns the time from now until the decrease of pod `a` is deferred, in milliseconds. At most 10 s. */
async function timeToDefer(): Promise<number> {
  let waited = 0;
  for (; node.deferred.length === 0 && waited < 10_000; waited += 100) await node.pass(100);
  return waited;
}

describe('usage that climbs back', () => {
  const note = (): string => node.deferred[0]?.[1].message ?? '';

  test('while it is held: Deferred within 5 s, with the usage, the limit and what cannot be reclaimed', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(10_000);
    expect(memory.high).not.toBe('max');
    // Faster than memory.high holds it.
    memory.meanwhile = () => (memory.cache = 50 * MiB);
    memory.cache = 50 * MiB;
    expect(await timeToDefer()).toBeLessThan(5000);
    expect(memory.high).toBe('max');
    expect(node.deferred).toMatchObject([['a', { state: 'Deferred', reason: 'RECLAIM_TIMEOUT' }]]);
    expect(note()).toBe(
      `container a: kubelet is to lower memory.max from ${192 * MiB} to ${64 * MiB}, but usage climbs back as fast as ` +
        `memory is reclaimed: ${70 * MiB} bytes are in use, ${20 * MiB} of which cannot be reclaimed ` +
        `(anon ${20 * MiB}, shmem 0, unevictable 0)`,
    );
  });

  test('after the hold, with memory that cannot be reclaimed: Deferred within 5 s, with the figures', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    await node.take('a');
    memory.anon = 90 * MiB;
    node.release('a');
    expect(await timeToDefer()).toBeLessThan(5000);
    expect(node.deferred).toMatchObject([['a', { reason: 'MEMORY_NOT_RECLAIMABLE' }]]);
    expect(note()).toContain(`but ${90 * MiB} bytes are in use that cannot be reclaimed`);
  });

  test('only while it is held, and is gone at the next check: Deferred with the figures of the hold', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.anon = 63 * MiB;
    memory.cache = 0;
    // The memory that it takes is returned once memory.high is as it was.
    memory.afterHigh = (value) => {
      if (value === 'max') memory.anon = 20 * MiB;
      return Promise.resolve();
    };
    expect(await timeToDefer()).toBeLessThan(5000);
    expect(note()).toContain(`but ${63 * MiB} bytes are in use that cannot be reclaimed`);
  });

  test('while it is lowered, as with pages that cannot be written: Deferred within 5 s, with the figures, and lowered further', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 10, stuck: 90 });
    node.admit('a', 64);
    expect(await timeToDefer()).toBeLessThan(5000);
    expect(node.deferred).toMatchObject([['a', { state: 'Deferred', reason: 'RECLAIM_TIMEOUT' }]]);
    expect(note()).toMatch(
      /but usage does not fall below it while memory is reclaimed: \d+ bytes are in use, 20971520 of which cannot be reclaimed/,
    );
    memory.stuck = 0;
    memory.cache = 90 * MiB;
    await node.pass(2000);
    expect(events()).toMatchObject({ held: 1, deferred: 1 });
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress' });
  });

  test('while it is lowered, if usage falls steadily: not Deferred', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 0, stuck: 100 });
    node.admit('a', 64);
    for (let second = 0; second < 20; second += 1) {
      memory.stuck -= 4 * MiB;
      await node.pass(1000);
    }
    expect([node.deferred, events()]).toEqual([[], { stuck: 1, held: 1 }]);
  });

  test('because another program raises memory.high again and again: Deferred at the third time', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    for (let round = 0; round < 3; round += 1) {
      expect(node.deferred).toEqual([]);
      while (events().held !== round + 1) await node.pass(500);
      memory.high = 'max';
      await node.pass(1100);
    }
    expect(node.deferred).toMatchObject([['a', { reason: 'RECLAIM_TIMEOUT' }]]);
    expect(note()).toContain('another program raises memory.high, and usage climbs back');
  });
});

describe("frequent writes of kubelet's state, which trigger checks", () => {
  /** Six checks within 300 ms. */
  const writeOften = async (): Promise<void> => {
    for (let write = 0; write < 6; write += 1) {
      await node.pass(50);
      node.writeEntry('a');
    }
    await node.pass(10);
  };

  test('do not make usage that is still reclaimed count as usage that does not fall', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    memory.beforeReclaim = () => new Promise((resolve) => void node.clock.after(1000, resolve));
    node.admit('a', 64);
    await writeOften();
    expect(node.deferred).toEqual([]);
  });

  test('do not make usage that has just climbed back end the hold', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.cache = 50 * MiB;
    await writeOften();
    expect([node.deferred, memory.high === 'max']).toEqual([[], false]);
  });
});

describe('a pod that waits for a slot to reclaim, because other pods use all of them', () => {
  test('is not reported, and is reclaimed when a slot is free', async () => {
    const end = Promise.withResolvers<undefined>();
    for (const uid of ['x', 'y']) {
      const busy = node.pod(uid, { limit: 192, anon: 20, cache: 100 });
      busy.beforeReclaim = () => end.promise;
      node.admit(uid, 64);
    }
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(40_000);
    // The first one has a slot, and its usage does not fall.
    expect(node.deferred.map(([uid]) => uid)).toContain('x');
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress' });
    expect(memory.asked).toEqual([]);
    end.resolve(undefined);
    await node.pass(10_000);
    expect(memory.current).toBe(56 * MiB);
    expect(node.deferred.some(([uid]) => uid === 'a')).toBe(false);
  });
});
