import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CLOSE_MS } from '../../../src/sandbox/foresight/decrease-reclaimer.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';

const MINUTE = 60_000;

let node: FakeKubeletNode;
beforeEach(() => {
  node = new FakeKubeletNode();
});
afterEach(async () => {
  const closed = node.reclaimer.close();
  await node.pass(CLOSE_MS);
  await closed;
});

const events = () => node.counters.snapshot().foresight;
const asked = (uid = 'a'): number => (node.cgroups.get(uid)?.asked ?? []).reduce((sum, amount) => sum + amount, 0);

describe('a decrease blocked by page cache', () => {
  test('a decrease blocked by page cache is reclaimed in steps to below the limit, and held until kubelet applies it', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(5000);
    expect(memory.current).toBe((64 - 8) * MiB);
    expect(asked()).toBe((120 - 56) * MiB);
    expect(memory.asked.length).toBeGreaterThan(1);
    expect(memory.high).toBeLessThanOrEqual(56 * MiB);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress', reclaimed: 64 * MiB });
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
    expect(node.reclaimer.reportOf('a')).toBeUndefined();
    expect(events()).toEqual({ stuck: 1, held: 1, unstuck: 1 });
    expect(node.counters.snapshot().foresightReclaimedBytes).toBe(64 * MiB);
    expect(node.clock.next).toBeUndefined();
  });

  test('KEP-1287: a decrease is reclaimed again when usage rises, with growing pauses, for ten minutes at most', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    const rounds: number[] = [];
    const start = node.clock.now();
    for (let second = 0; second < 660; second += 1) {
      const before = memory.asked.length;
      await node.pass(1000);
      if (memory.asked.length > before) rounds.push(Math.round((node.clock.now() - start) / 1000));
      // As with dirty pages: memory.high is in force, and usage is above it.
      memory.cache = 100 * MiB;
    }
    expect(rounds.slice(0, 3).every((at) => at < 30)).toBe(true);
    expect(rounds.length).toBeLessThan(30);
    expect(rounds.at(-1)).toBeGreaterThan(560);
    expect(rounds.at(-1)).toBeLessThanOrEqual(601);
    expect(events()).toMatchObject({ stuck: 1, deferred: 1, given_up: 1 });
    const report = node.reclaimer.reportOf('a');
    expect(report).toMatchObject({ state: 'Deferred', reason: 'RECLAIM_TIMEOUT' });
    expect(report?.message).toContain('given up after 10 minutes: container a: kubelet is to lower memory.max from');
    expect(report?.message).toContain('usage climbs back as fast as memory is reclaimed');
    // The first report, the report after five minutes, and the last report.
    const told = node.deferred.map(([, { message }]) => message);
    expect(told.map((message) => message.startsWith('given up'))).toEqual([false, false, true]);
    expect(told[2]).toBe(report?.message);
    expect(memory.high).toBe('max');
    // kubelet's later admission starts again.
    memory.cache = 30 * MiB;
    node.admit('a', 48);
    await node.pass(1000);
    expect(memory.current).toBe(42 * MiB);
    expect(events()).toMatchObject({ stuck: 2, given_up: 1 });
  });

  test('KEP-1287: a decrease that fits only with swap is not held if its update takes the swap', async () => {
    const memory = node.pod('a', { limit: 192, anon: 50, cache: 60 });
    memory.swapMax = 50 * MiB;
    memory.swapped = 20 * MiB;
    node.swapAfter.set('a', bytes(0));
    node.admit('a', 64);
    await node.pass(3000);
    expect([memory.highs, memory.asked]).toEqual([[], []]);
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(node.reclaimer.reportOf('a')?.message).toContain(`${70 * MiB} bytes are in use that cannot be reclaimed`);
  });

  test('a hold ends if memory goes to swap and then exceeds the limit together with the swap', async () => {
    const memory = node.pod('a', { limit: 192, anon: 40, cache: 60 });
    memory.swapMax = 100 * MiB;
    node.swapAfter.set('a', bytes(0));
    node.admit('a', 64);
    await node.pass(3000);
    expect(memory.high).not.toBe('max');
    memory.anon = 30 * MiB;
    memory.swapped = 40 * MiB;
    await node.pass(2000);
    expect([memory.high, node.deferred[0]?.[1].reason]).toEqual(['max', 'MEMORY_NOT_RECLAIMABLE']);
  });

  test('a Deferred decrease is no longer reported once kubelet has admitted other values', async () => {
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

  test('a decrease is not reclaimed while a resize of the pod is in progress', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.busy.add('a');
    node.admit('a', 64);
    await node.pass(10_000);
    expect([memory.asked, memory.highs]).toEqual([[], []]);
    let taken: Promise<unknown> | undefined;
    memory.beforeReclaim = () => Promise.resolve(void (taken ??= node.take('a')));
    node.release('a');
    await node.pass(10_000);
    await taken;
    expect([memory.asked.length, memory.high]).toEqual([1, 'max']);
    memory.beforeReclaim = () => Promise.resolve();
    node.limits.set('a', 64);
    node.release('a');
    await node.pass(1000);
    expect([memory.asked.length, node.reclaimer.reportOf('a')]).toEqual([1, undefined]);
  });

  test('a decrease is Deferred with figures while dirty pages cannot be reclaimed, and retried until they can be', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 10, stuck: 90 });
    node.admit('a', 64);
    await node.pass(33_000);
    expect(node.deferred).toMatchObject([['a', { state: 'Deferred', reason: 'RECLAIM_TIMEOUT' }]]);
    expect(node.reclaimer.reportOf('a')?.message).toContain('reclaim frees no more of the');
    memory.stuck = 0;
    memory.cache = 90 * MiB;
    await node.pass(40_000);
    expect(memory.current).toBe(56 * MiB);
    expect(node.deferred.map(([uid, { reason }]) => [uid, reason])).toEqual([['a', 'RECLAIM_TIMEOUT']]);
  });
});

describe('a decrease without anything to reclaim', () => {
  test('a decrease without reclaimable memory is Deferred with figures, reported once, and retried until memory is freed', async () => {
    const memory = node.pod('a', { limit: 192, anon: 63, cache: 37 });
    node.admit('a', 64);
    await node.settle();
    expect(node.deferred).toHaveLength(1);
    await node.pass(30_000);
    expect(memory.asked).toEqual([]);
    const message =
      `container a: kubelet is to lower memory.max from ${192 * MiB} to ${64 * MiB}, but ${63 * MiB} bytes are in use that ` +
      `cannot be reclaimed (anon ${63 * MiB}, shmem 0, unevictable 0; memory.current ${100 * MiB}): expected less than ${62 * MiB}`;
    expect(node.reclaimer.reportOf('a')).toMatchObject({
      state: 'Deferred',
      reason: 'MEMORY_NOT_RECLAIMABLE',
      message,
    });
    expect(node.deferred).toMatchObject([['a', { message }]]);
    memory.anon = 30 * MiB;
    memory.cache = 40 * MiB;
    await node.pass(5000);
    expect(memory.current).toBe(56 * MiB);
    expect(events()).toEqual({ stuck: 1, held: 1, deferred: 1 });
  });

  test('a Deferred decrease is reported at once to a listener that is added later', async () => {
    node.pod('a', { limit: 192, anon: 100, cache: 20 });
    node.pod('b', { limit: 192, anon: 20, cache: 100 });
    for (const uid of ['a', 'b']) node.admit(uid, 64);
    await node.pass(1000);
    const told: unknown[] = [];
    node.reclaimer.watch((uid, { reason }) => told.push([uid, reason]));
    expect(told).toEqual([['a', 'MEMORY_NOT_RECLAIMABLE']]);
    await node.pass(30_000);
    expect([told.length, node.deferred.length]).toEqual([1, 1]);
  });

  test('a Deferred decrease is reported again after five minutes with new figures, and a later decrease at once', async () => {
    const memory = node.pod('a', { limit: 192, anon: 63, cache: 37 });
    const told = (): (string | undefined)[] =>
      node.deferred.map(([, { message }]) => /to (\d+), but (\d+) bytes/.exec(message)?.slice(1).join(' '));
    node.admit('a', 64);
    await node.pass(4 * MINUTE);
    memory.anon = 80 * MiB;
    expect(told()).toEqual([`${64 * MiB} ${63 * MiB}`]);
    await node.pass(90_000);
    expect(told()).toEqual([`${64 * MiB} ${63 * MiB}`, `${64 * MiB} ${80 * MiB}`]);
    node.admit('a', 60);
    await node.settle();
    expect(told().at(-1)).toBe(`${60 * MiB} ${80 * MiB}`);
    // kubelet withdraws the decrease, and admits it again.
    node.admit('a', 192);
    await node.settle();
    node.admit('a', 60);
    await node.settle();
    expect(told()).toHaveLength(4);
    expect(events()).toMatchObject({ stuck: 3, deferred: 3 });
  });

  test('a decrease is retried after the same backoff, however often kubelet writes its files', async () => {
    const memory = node.pod('a', { limit: 192, anon: 63, cache: 40 });
    node.admit('a', 64);
    for (let n = 0; n < 50; n += 1) {
      await node.pass(20);
      node.writeEntry('a');
    }
    memory.anon = 30 * MiB;
    await node.pass(3000);
    expect(memory.current).toBe(56 * MiB);
  });

  test('a decrease is neither reclaimed nor reported if usage is below the new limit', async () => {
    const memory = node.pod('a', { limit: 192, anon: 60, cache: 3 });
    node.admit('a', 64);
    await node.pass(5000);
    expect([node.reclaimer.reportOf('a'), memory.asked, events()]).toEqual([undefined, [], {}]);
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(events()).toEqual({});
  });

  test('a decrease is reclaimed by memory.high alone on a kernel without memory.reclaim', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    memory.hasReclaim = false;
    node.admit('a', 64);
    await node.pass(1000);
    expect(memory.current).toBeLessThanOrEqual(56 * MiB);
    expect(node.counters.snapshot().foresightReclaimedBytes).toBe(120 * MiB - memory.current);
  });
});

describe('a decrease that kubelet has not compared yet', () => {
  test('a decrease that kubelet has not compared yet is neither held nor reported', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 120 });
    const stuck = node.pod('b', { limit: 192, anon: 150, cache: 20 });
    for (const uid of ['a', 'b']) node.admitUncompared(uid, { [uid]: 64 });
    await node.pass(11 * MINUTE);
    expect([memory.highs, stuck.highs, node.deferred, events()]).toEqual([[], [], [], {}]);
    expect(['a', 'b'].map((uid) => node.reclaimer.reportOf(uid))).toEqual([undefined, undefined]);
    expect(node.clock.next).toBeUndefined();
    for (const uid of ['a', 'b']) void node.reclaimer.comparable(uid, 'cadvisor');
    await node.pass(2000);
    expect(memory.current).toBe(56 * MiB);
    expect(node.deferred).toMatchObject([['b', { reason: 'MEMORY_NOT_RECLAIMABLE' }]]);
    // The ten minutes start when kubelet compares usage and limit.
    await node.pass(9 * MINUTE);
    expect(events().given_up).toBeUndefined();
  });

  test('a decrease of the pod limit itself is held without a comparison, since kubelet applies it without one', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.podLevelPending.add('a');
    node.admitUncompared('a', { a: 64 });
    await node.pass(5000);
    expect(memory.current).toBe(56 * MiB);
  });

  test.each([
    ['above', 80],
    ['below', 40],
  ])(
    'after a container is killed with the usage of its pod %s the limit, the pod limit is held until cAdvisor has measured it',
    async (_which, cache) => {
      node.podLevel.add('pod');
      node.pod('a', { limit: 192, anon: 150, cache: 20 });
      const pod = node.pod('pod', { limit: 256, anon: 150, cache: 80 });
      node.admitUncompared('x', { a: 64, pod: 128 });
      await node.pass(1500);
      expect([node.deferred, node.cgroups.get('a')!.highs]).toEqual([[], []]);
      node.limits.set('a', 64);
      pod.anon = 60 * MiB;
      pod.cache = cache * MiB;
      let isThrough = false;
      void node.reclaimer.comparable('x', 'cadvisor')?.then(() => (isThrough = true));
      await node.pass(5000);
      expect([isThrough, node.watched, pod.current < 128 * MiB]).toEqual([false, ['pod'], true]);
      node.measure('pod');
      await node.pass(250);
      expect([isThrough, node.deferred]).toEqual([true, []]);
    },
  );

  test('after a container is killed, the pod limit is compared at once if usage was never above it', async () => {
    node.podLevel.add('pod');
    node.pod('a', { limit: 192, anon: 100, cache: 0 });
    const pod = node.pod('pod', { limit: 256, anon: 100, cache: 20 });
    node.admitUncompared('x', { a: 64, pod: 128 });
    await node.pass(1500);
    node.limits.set('a', 64);
    pod.anon = 0;
    let isThrough = false;
    void node.reclaimer.comparable('x', 'cadvisor')?.then(() => (isThrough = true));
    await node.settle();
    expect([isThrough, pod.highs]).toEqual([true, []]);
  });

  test('a decrease of a pod that is evicted while usage is held does not count as applied', async () => {
    node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(5000);
    node.limits.delete('a');
    node.cgroups.delete('a');
    node.writeEntry('a');
    await node.pass(2000);
    expect(events()).toEqual({ stuck: 1, held: 1 });
  });

  test('a decrease that was never held does not count as applied after reclaim', async () => {
    node.pod('a', { limit: 192, anon: 150, cache: 20 });
    node.admit('a', 64);
    await node.pass(1000);
    node.limits.set('a', 64);
    node.writeEntry('a');
    await node.pass(1000);
    expect(events()).toEqual({ stuck: 1, deferred: 1 });
  });
});

describe('decreases of several pods', () => {
  test('KEP-1287: decreases of several pods are reclaimed with two writes at a time, and all of them are held', async () => {
    const names = Array.from({ length: 10 }, (_, index) => `pod-${index}`);
    let now = 0;
    let most = 0;
    for (const name of names) {
      const memory = node.pod(name, { limit: 192, anon: 20, cache: 100 });
      memory.beforeReclaim = async () => {
        most = Math.max(most, (now += 1));
        await new Promise((resolve) => setImmediate(resolve));
        now -= 1;
      };
    }
    for (const name of names) node.admit(name, 64);
    await node.pass(3000);
    expect(names.map((name) => node.cgroups.get(name)?.current)).toEqual(names.map(() => 56 * MiB));
    expect([most, events()]).toEqual([2, { stuck: 10, held: 10 }]);
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
    expect(removed.high).toBe('max');
  });

  test('a decrease is checked when kubelet writes the entry of its pod, without the decreases of other pods', async () => {
    for (const uid of ['a', 'b', 'c']) {
      node.pod(uid, { limit: 192, anon: 63, cache: 40 });
      node.admit(uid, 64);
    }
    await node.settle();
    node.reads.length = 0;
    node.writeEntry('b');
    await node.settle();
    expect(node.reads).toEqual(['b']);
    node.reclaimer.check();
    await node.settle();
    expect(node.reads).toEqual(['b']);
    node.lists = 0;
    node.reclaimer.podAdded('c');
    await node.settle();
    expect(node.reads).toEqual(['b', 'c']);
    // A start adds all pods, and a list for each of them would take the square of their number.
    expect(node.lists).toBe(0);
  });

  test('a reclaimer closed while the disk hangs ends after one second, for all pods together', async () => {
    const memories = ['a', 'b', 'c'].map((uid) => {
      const memory = node.pod(uid, { limit: 192, anon: 20, cache: 100 });
      node.admit(uid, 64);
      return memory;
    });
    await node.pass(5000);
    expect(memories.every(({ high }) => high !== 'max')).toBe(true);
    node.beforeEnd = new Promise(() => undefined);
    let isClosed = false;
    const closed = node.reclaimer.close().then(() => (isClosed = true));
    await node.pass(CLOSE_MS - 1);
    // memory.high is restored without the disk.
    expect([isClosed, ...memories.map(({ high }) => high)]).toEqual([false, 'max', 'max', 'max']);
    await node.pass(1);
    await closed;
    // The records remain, and the next start reads them.
    expect([...node.journal.keys()]).toEqual(['a', 'b', 'c']);
  });

  test('a reclaimer closed while the disk hangs before a hold has begun ends after one second', async () => {
    node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.beforeJournal = new Promise(() => undefined);
    node.admit('a', 64);
    await node.pass(1000);
    const closed = node.reclaimer.close();
    await node.pass(CLOSE_MS);
    await closed;
  });

  test('a closed reclaimer does not reclaim any more', async () => {
    const memory = node.pod('a', { limit: 192, anon: 100, cache: 20 });
    node.admit('a', 64);
    await node.pass(1000);
    await node.reclaimer.close();
    memory.anon = 0;
    node.reclaimer.check();
    await node.pass(MINUTE);
    expect(memory.asked).toEqual([]);
  });
});
