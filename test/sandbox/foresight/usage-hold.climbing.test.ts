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

  test('KEP-1287: a decrease is Deferred within 5 s if usage climbs back during its hold, with usage, limit and unreclaimable memory', async () => {
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

  test('KEP-1287: a decrease is Deferred within 5 s with figures if unreclaimable memory has grown after its hold', async () => {
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

  test('a decrease is Deferred with the figures of its hold if unreclaimable memory is gone at the next check', async () => {
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

  test('KEP-1287: a decrease is Deferred within 5 s with figures if usage does not fall during reclaim, and reclaim continues', async () => {
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

  test('a decrease is not Deferred while usage falls steadily during reclaim', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 0, stuck: 100 });
    node.admit('a', 64);
    for (let second = 0; second < 20; second += 1) {
      memory.stuck -= 4 * MiB;
      await node.pass(1000);
    }
    expect([node.deferred, events()]).toEqual([[], { stuck: 1, held: 1 }]);
  });

  test('KEP-1287: a decrease is Deferred with the reason when another program has raised memory.high for the third time', async () => {
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

  test('frequent kubelet writes do not make usage that is still being reclaimed count as stalled', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    memory.beforeReclaim = () => new Promise((resolve) => void node.clock.after(1000, resolve));
    node.admit('a', 64);
    await writeOften();
    expect(node.deferred).toEqual([]);
  });

  test('frequent kubelet writes do not end the hold of usage that has just climbed back', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.cache = 50 * MiB;
    await writeOften();
    expect([node.deferred, memory.high === 'max']).toEqual([[], false]);
  });
});

describe('a pod that waits for a free slot to reclaim', () => {
  test('a pod that waits for a reclaim slot is not Deferred, and is reclaimed when a slot is free', async () => {
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
