import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/index.ts';
import { Code, Reason, ShimError } from '../../../src/core/errors/index.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';
import type { FakeMemory } from '../../support/fake-memory.ts';
import { MiB } from '../../support/resize/pods.ts';

let node: FakeKubeletNode;
beforeEach(() => {
  node = new FakeKubeletNode();
});
afterEach(() => node.reclaimer.close());

const events = () => node.counters.snapshot().foresight;

/** A pod whose process reads a file again and again: its page cache climbs as far as memory.high allows, in MiB. */
function hotPod(uid: string, { limit, anon, hot }: Record<'limit' | 'anon' | 'hot', number>): FakeMemory {
  const memory = node.pod(uid, { limit, anon, cache: hot });
  memory.meanwhile = () => {
    const most = (memory.high === 'max' ? limit * MiB : memory.high) - memory.anon;
    if (memory.cache < hot * MiB) memory.cache = Math.max(memory.cache, Math.min(hot * MiB, most, memory.cache + MiB));
  };
  return memory;
}

/** Lets a second pass, and returns the highest usage in it. */
async function highestIn(memory: FakeMemory, seconds: number): Promise<number> {
  let highest = 0;
  for (let step = 0; step < seconds * 10; step += 1) {
    await node.pass(100);
    highest = Math.max(highest, memory.readMemoryCurrent());
  }
  return highest / MiB;
}

describe('hot page cache', () => {
  test('stays below the limit until kubelet tries, and memory.high is as it was afterwards', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    memory.high = bytes(180 * MiB);
    node.admit('a', 64);
    await node.pass(500);
    expect(await highestIn(memory, 15)).toBeLessThan(64);
    expect(node.journal.get('a')).toEqual(new Map([['a', 180 * MiB]]));
    expect(node.reclaimer.reportOf('a')).toMatchObject({
      state: 'InProgress',
      message: 'memory usage is held below the new limit: waiting for kubelet to apply it',
    });
    expect(node.kubeletTries('a')).toBe(true);
    node.reclaimer.check();
    await node.settle();
    expect([memory.high, node.journal.size]).toEqual([180 * MiB, 0]);
    expect([events(), node.deferred]).toEqual([{ stuck: 1, held: 1, unstuck: 1 }, []]);
  });

  test('of a container and of its pod: both stay below until kubelet tries', async () => {
    const container = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    const pod = hotPod('pod', { limit: 256, anon: 20, hot: 150 });
    node.admitAll('a', { a: 64, pod: 128 });
    await node.pass(500);
    for (let second = 0; second < 15; second += 1) {
      await node.pass(1000);
      expect([container.readMemoryCurrent() < 64 * MiB, pod.readMemoryCurrent() < 128 * MiB]).toEqual([true, true]);
    }
    expect([...(node.journal.get('a') ?? [])]).toEqual([
      ['a', 'max'],
      ['pod', 'max'],
    ]);
    node.admitAll('a', { a: 192, pod: 256 });
    await node.settle();
    expect([container.high, pod.high, node.journal.size]).toEqual(['max', 'max', 0]);
  });

  test('a pod that cannot be lowered does not keep its container held', async () => {
    const container = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    const pod = node.pod('pod', { limit: 256, anon: 100, cache: 0, stuck: 60 });
    node.admitAll('a', { a: 64, pod: 128 });
    await node.pass(29_000);
    expect(container.high).not.toBe('max');
    await node.pass(3000);
    expect(node.deferred).toMatchObject([['a', { reason: 'RECLAIM_TIMEOUT' }]]);
    expect(node.deferred[0]?.[1].message).toContain('container pod: kubelet is to lower memory.max');
    pod.stuck = 0;
    await node.pass(30_000);
    expect(events()).toMatchObject({ held: 1 });
  });

  test('kubelet does not try for a minute: Deferred with figures, and held again after a rest', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(59_000);
    expect([memory.high === 'max', node.deferred]).toEqual([false, []]);
    await node.pass(2000);
    expect(memory.high).toBe('max');
    expect(node.deferred).toMatchObject([['a', { state: 'Deferred', reason: 'RECLAIM_TIMEOUT' }]]);
    expect(node.deferred[0]?.[1].message).toMatch(
      /has not done so while usage was held below it for 60 s: \d+ bytes are in use, 20971520 of which cannot be reclaimed/,
    );
    expect(await highestIn(memory, 2)).toBeGreaterThan(63);
    await node.pass(5000);
    expect(events()).toMatchObject({ held: 2, deferred: 1 });
    expect(memory.high).not.toBe('max');
  });

  test('is held for ten minutes at most', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(601_000);
    expect(memory.high).toBe('max');
    const { length } = memory.highs;
    await node.pass(120_000);
    expect([memory.highs.length, events().given_up]).toEqual([length, 1]);
  });
});

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
    // What it takes is given back once memory.high is as it was.
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
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
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

describe('memory that cannot be reclaimed', () => {
  test('grows while held: memory.high follows it, so that the process is not delayed', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(2000);
    const before = Number(memory.high);
    memory.anon = 54 * MiB;
    memory.cache = 2 * MiB;
    await node.pass(1500);
    expect(Number(memory.high)).toBeGreaterThan(before);
    expect(Number(memory.high)).toBeLessThan(64 * MiB);
    expect(events()).toEqual({ stuck: 1, held: 1 });
  });

  test('comes close to the limit while held: let go, and Deferred with figures', async () => {
    const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.admit('a', 64);
    await node.pass(2000);
    memory.anon = 64 * MiB;
    memory.cache = 0;
    await node.pass(1500);
    expect(memory.high).toBe('max');
    expect(node.deferred).toMatchObject([['a', { state: 'Deferred', reason: 'MEMORY_NOT_RECLAIMABLE' }]]);
    memory.anon = 20 * MiB;
    memory.cache = 80 * MiB;
    await node.pass(6000);
    expect(events()).toMatchObject({ held: 2 });
  });

  test('is 3 MiB below the limit: held, since the decrease fits', async () => {
    const memory = node.pod('a', { limit: 192, anon: 61, cache: 40 });
    node.admit('a', 64);
    await node.pass(3000);
    expect([memory.current < 64 * MiB, node.deferred]).toEqual([true, []]);
    expect(events()).toEqual({ stuck: 1, held: 1 });
  });
});

describe('others', () => {
  test('a request for the pod begins with memory.high as it was, and the hold goes on after it', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    expect(memory.high).not.toBe('max');
    await node.take('a');
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
    await node.pass(5000);
    expect(memory.high).toBe('max');
    node.release('a');
    await node.settle();
    expect(memory.high).not.toBe('max');
    expect(node.deferred).toEqual([]);
  });

  test('a request while the journal is written waits until the hold is over', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    let write = (): void => undefined;
    node.beforeJournal = new Promise((resolve) => (write = resolve));
    node.admit('a', 64);
    await node.settle();
    let isTaken = false;
    const taken = node.take('a').then(() => (isTaken = true));
    await node.settle();
    expect(isTaken).toBe(false);
    write();
    await taken;
    expect([memory.highs, node.journal.size]).toEqual([[], 0]);
  });

  test('a pod without a hold: nothing to wait for', () => {
    expect(node.reclaimer.release('a')).toBeUndefined();
  });

  test('memory.high raised by another program: held again', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.high = 'max';
    memory.cache = 100 * MiB;
    await node.pass(5000);
    expect(await highestIn(memory, 3)).toBeLessThan(64);
    expect(node.deferred).toEqual([]);
  });

  test('memory.high set by another program to less is left as it is', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.high = bytes(40 * MiB);
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(memory.high).toBe(40 * MiB);
  });

  test('an unfinished transaction of the pod: no hold before it is recovered', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.unfinished.add('a');
    node.admit('a', 64);
    await node.pass(10_000);
    expect([memory.highs, node.deferred]).toEqual([[], []]);
    node.unfinished.delete('a');
    await node.pass(2000);
    expect(memory.high).not.toBe('max');
  });

  test('a journal that cannot be written: memory.high stays, Deferred with the reason', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.journalFault = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'the disk is full');
    node.admit('a', 64);
    await node.pass(2000);
    expect(memory.highs).toEqual([]);
    expect(node.deferred).toMatchObject([['a', { reason: 'JOURNAL_UNAVAILABLE' }]]);
    expect(node.deferred[0]?.[1].message).toContain('usage cannot be held below it: the disk is full');
  });

  test('memory.high of an earlier hold that cannot be restored stays in the journal', async () => {
    hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.journal.set('a', new Map([['a', bytes(180 * MiB)]]));
    node.journalFault = new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, 'memory.high cannot be written');
    node.admit('a', 64);
    await node.pass(2000);
    expect(node.deferred).toMatchObject([['a', { reason: 'CGROUP_WRITE_FAILED' }]]);
    expect(node.journal.get('a')).toEqual(new Map([['a', 180 * MiB]]));
  });

  test('closed: resolves with memory.high as it was', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    await node.reclaimer.close();
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
  });

  test('removed: memory.high is as it was', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    node.reclaimer.podRemoved('a');
    await node.settle();
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
  });

  test('kubelet writes its files all the time: the hold goes on', async () => {
    const memory = hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    for (let n = 0; n < 100; n += 1) {
      await node.pass(50);
      node.writeEntry('a');
    }
    expect(events()).toEqual({ stuck: 1, held: 1 });
    expect(memory.readMemoryCurrent()).toBeLessThan(64 * MiB);
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
