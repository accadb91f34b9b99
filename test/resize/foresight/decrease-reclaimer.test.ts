import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../support/resize/pods.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';

const MINUTE = 60_000;

let node: FakeKubeletNode;
beforeEach(() => {
  node = new FakeKubeletNode();
});
afterEach(() => node.reclaimer.close());

const events = () => node.counters.snapshot().foresight;
const asked = (uid = 'a'): number => (node.cgroups.get(uid)?.asked ?? []).reduce((sum, amount) => sum + amount, 0);

describe('a decrease blocked by page cache', () => {
  test('is reclaimed in steps to the margin below the limit, and then waits for kubelet', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(5000);
    expect(memory.current).toBe((64 - 8) * MiB);
    expect(asked()).toBe((120 - 56) * MiB);
    expect(memory.asked.length).toBeGreaterThan(1);
    expect(memory.highs).toEqual([]);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress', reclaimed: 64 * MiB });
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(node.reclaimer.reportOf('a')).toBeUndefined();
    expect(events()).toEqual({ stuck: 1, unstuck: 1 });
    expect(node.counters.snapshot().foresightReclaimedBytes).toBe(64 * MiB);
    expect(node.clock.next).toBeUndefined();
  });

  test('is reclaimed again when usage rises, with growing pauses, for ten minutes', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    const rounds: number[] = [];
    const start = node.clock.now();
    for (let second = 0; second < 660; second += 1) {
      const before = memory.asked.length;
      await node.pass(1000);
      if (memory.asked.length > before) rounds.push(Math.round((node.clock.now() - start) / 1000));
      memory.cache = 100 * MiB;
    }
    const gaps = rounds.slice(1).map((at, index) => at - (rounds[index] ?? 0));
    expect(gaps.slice(0, 5).every((gap, index) => gap >= 2 ** index)).toBe(true);
    expect(Math.max(...gaps)).toBeLessThan(33);
    expect(rounds.length).toBeLessThan(30);
    expect(rounds.at(-1)).toBeGreaterThan(560);
    expect(rounds.at(-1)).toBeLessThanOrEqual(601);
    expect(events()).toEqual({ stuck: 1, given_up: 1 });
    expect(node.reclaimer.reportOf('a')).toMatchObject({
      state: 'Deferred',
      reason: 'RECLAIM_TIMEOUT',
      message: 'given up after 10 minutes: memory usage kept rising again after reclaim',
    });
    // A newer decrease starts from the beginning.
    memory.cache = 30 * MiB;
    node.admit('a', 48);
    await node.pass(1000);
    expect(memory.current).toBe(40 * MiB);
    expect(events()).toEqual({ stuck: 2, given_up: 1 });
  });

  test('is no longer reported once kubelet has admitted other values', async () => {
    const memory = node.pod('a', { limit: 192, anon: 100, cache: 20 });
    node.admit('a', 64);
    await node.pass(1000);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred' });
    node.admit('a', 192);
    await node.pass(1000);
    expect(node.reclaimer.reportOf('a')).toBeUndefined();
    expect(memory.asked).toEqual([]);
    expect(events()).toEqual({ stuck: 1, deferred: 1 });
  });

  test('is not reclaimed while a resize of the pod is in progress', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.busy.add('a');
    node.admit('a', 64);
    await node.pass(10_000);
    expect(memory.asked).toEqual([]);
    memory.beforeReclaim = () => Promise.resolve(void node.busy.add('a'));
    node.release('a');
    await node.pass(10_000);
    expect(memory.asked).toHaveLength(1);
    memory.beforeReclaim = () => Promise.resolve();
    node.limits.set('a', 64);
    node.release('a');
    await node.pass(1000);
    expect([memory.asked.length, node.reclaimer.reportOf('a')]).toEqual([1, undefined]);
  });

  test('is Deferred with the figures while dirty pages cannot be reclaimed, and is retried until they can', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 10, stuck: 90 });
    node.admit('a', 64);
    await node.pass(20_000);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred', reason: 'RECLAIM_TIMEOUT' });
    expect(node.reclaimer.reportOf('a')?.message).toContain('reclaim frees no more of the');
    memory.stuck = 0;
    memory.cache = 90 * MiB;
    await node.pass(40_000);
    expect(memory.current).toBe(56 * MiB);
    expect(node.deferred.map(([uid, { reason }]) => [uid, reason])).toEqual([['a', 'RECLAIM_TIMEOUT']]);
  });
});

describe('a decrease without anything to reclaim', () => {
  test('is Deferred with the figures, reported once, and retried with backoff until memory is freed', async () => {
    const memory = node.pod('a', { limit: 192, anon: 60, cache: 40 });
    node.admit('a', 64);
    await node.pass(30_000);
    expect(memory.asked).toEqual([]);
    const message =
      `container a: kubelet is to lower memory.max from ${192 * MiB} to ${64 * MiB}, but ${60 * MiB} bytes are in use that ` +
      `cannot be reclaimed (anon ${60 * MiB}, shmem 0, unevictable 0; memory.current ${100 * MiB}): expected less than ${56 * MiB}`;
    expect(node.reclaimer.reportOf('a')).toMatchObject({
      state: 'Deferred',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      message,
    });
    expect(node.deferred).toMatchObject([['a', { message }]]);
    memory.anon = 30 * MiB;
    await node.pass(31_000);
    expect(memory.current).toBe(56 * MiB);
    expect(events()).toEqual({ stuck: 1, deferred: 1 });
  });

  test('is retried after the same backoff however often kubelet writes its files', async () => {
    const memory = node.pod('a', { limit: 192, anon: 60, cache: 40 });
    node.admit('a', 64);
    for (let n = 0; n < 50; n += 1) {
      await node.pass(20);
      node.reclaimer.check();
    }
    memory.anon = 30 * MiB;
    await node.pass(3000);
    expect(memory.current).toBe(56 * MiB);
  });

  test('is left to kubelet and not reported when usage is below the new limit', async () => {
    const memory = node.pod('a', { limit: 192, anon: 60, cache: 3 });
    node.admit('a', 64);
    await node.pass(5000);
    expect([node.reclaimer.reportOf('a'), memory.asked, events()]).toEqual([undefined, [], {}]);
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(events()).toEqual({});
  });

  test('is Deferred on a kernel without memory.reclaim', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    memory.hasReclaim = false;
    node.admit('a', 64);
    await node.pass(1000);
    expect(node.reclaimer.reportOf('a')?.message).toContain('no memory.reclaim');
    expect(memory.highs).toEqual([]);
  });
});

describe('decreases of several pods', () => {
  test('of ten pods at once stay within the reclaim rate of the node', async () => {
    const names = Array.from({ length: 10 }, (_, index) => `pod-${index}`);
    for (const name of names) node.pod(name, { limit: 192, anon: 20, cache: 100 });
    const start = node.clock.now();
    for (const name of names) node.admit(name, 64);
    let last = start;
    for (let round = 0; round < 200; round += 1) {
      await node.pass(50);
      const total = names.reduce((sum, name) => sum + asked(name), 0);
      // 512 MiB in a second, and one more step.
      expect(total).toBeLessThanOrEqual(((node.clock.now() - start) / 1000) * 512 * MiB + 64 * MiB);
      if (total < 640 * MiB) last = node.clock.now();
    }
    expect(names.map((name) => node.cgroups.get(name)?.current)).toEqual(names.map(() => 56 * MiB));
    expect(last - start).toBeLessThan(3000);
  });

  test('a decrease ends when its pod ends or is removed', async () => {
    const [gone, removed] = [
      node.pod('gone', { limit: 192, anon: 20, cache: 100 }),
      node.pod('removed', { limit: 192, anon: 20, cache: 100 }),
    ];
    gone.beforeReclaim = () => Promise.resolve(void (gone.isGone = true));
    removed.beforeReclaim = () => {
      node.reclaimer.podRemoved('removed');
      return Promise.resolve();
    };
    node.admit('gone', 64);
    node.admit('removed', 64);
    await node.pass(5000);
    expect([gone.asked.length, removed.asked.length]).toEqual([1, 1]);
    expect(['gone', 'removed'].map((uid) => node.reclaimer.reportOf(uid))).toEqual([undefined, undefined]);
  });

  test('a closed reclaimer does nothing more', async () => {
    const memory = node.pod('a', { limit: 192, anon: 100, cache: 20 });
    node.admit('a', 64);
    await node.pass(1000);
    node.reclaimer.close();
    memory.anon = 0;
    node.reclaimer.check();
    await node.pass(MINUTE);
    expect(memory.asked).toEqual([]);
  });
});
