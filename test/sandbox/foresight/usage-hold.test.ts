import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';
import type { FakeMemory } from '../../support/fake-memory.ts';

let node: FakeKubeletNode;
beforeEach(() => {
  node = new FakeKubeletNode();
});
afterEach(() => node.reclaimer.close());

const events = () => node.counters.snapshot().foresight;

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
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
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
    const container = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    const pod = node.hotPod('pod', { limit: 256, anon: 20, hot: 150 });
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
    const container = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
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

  /** Page cache that is back at once when memory.high is restored. */
  const rushing = (memory: FakeMemory): void => {
    memory.meanwhile = () => {
      if (memory.high === 'max') memory.cache = 100 * MiB;
    };
    const write = memory.write.bind(memory);
    memory.write = async (...change) => {
      const written = await write(...change);
      memory.meanwhile();
      return written;
    };
  };

  /** Returns the messages of the reports of the pod `a` in this time. */
  async function messagesIn(seconds: number): Promise<readonly string[]> {
    const messages = new Set<string>();
    for (let half = 0; half < seconds * 2; half += 1) {
      await node.pass(500);
      messages.add(node.reclaimer.reportOf('a')?.message ?? '');
    }
    return [...messages];
  }

  test('the report after a hold names the pod that could not be lowered, not the container that was held', async () => {
    rushing(node.hotPod('a', { limit: 192, anon: 20, hot: 100 }));
    node.pod('pod', { limit: 256, anon: 100, cache: 0, stuck: 60 });
    node.admitAll('a', { a: 64, pod: 128 });
    const failed = (await messagesIn(34)).filter((message) => message.includes('reclaim frees no more of'));
    expect(failed).toEqual([expect.stringMatching(/^container pod: .* frees no more of the 62914560 /)]);
  });

  test('the report after a hold has the usage below the limit while it was held', async () => {
    rushing(node.hotPod('a', { limit: 192, anon: 20, hot: 100 }));
    node.admit('a', 64);
    const found = (await messagesIn(602)).flatMap((message) => {
      const figures = /container a: .* held below it for 60 s: (\d+) bytes/.exec(message);
      return figures === null ? [] : [Number(figures[1])];
    });
    expect(found.length).toBeGreaterThan(0);
    expect(Math.max(...found)).toBeLessThan(64 * MiB);
  });

  test('kubelet does not try for a minute: Deferred with figures, and held again after a rest', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
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
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(601_000);
    expect(memory.high).toBe('max');
    const { length } = memory.highs;
    await node.pass(120_000);
    expect([memory.highs.length, events().given_up]).toEqual([length, 1]);
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

  test('comes close to the limit while held: released, and Deferred with figures', async () => {
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
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
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

  describe('an update of kubelet that fails again and again', () => {
    const message = 'volume cache of pod default/a is in use';
    let memory: FakeMemory;
    /** kubelet tries every 10 s. Returns how long its call has waited, and how long usage was held, in seconds. */
    const tries = async (times: number): Promise<{ waited: number; held: number }> => {
      let [waited, held] = [0, 0];
      for (let at = 0; at < times; at += 1) {
        const call = { isWaiting: true };
        void Promise.resolve(node.reclaimer.comparable('a', 'cadvisor')).then(() => (call.isWaiting = false));
        for (let second = 0; second < 10; second += 1) {
          await node.pass(1000);
          if (call.isWaiting) waited += 1;
          if (memory.high !== 'max') held += 1;
        }
        node.measure('pod');
        await node.pass(250);
        await node.refuse('a', 'VOLUME_IN_USE', message);
        await node.settle();
      }
      return { waited, held };
    };
    beforeEach(() => {
      node.podLevel.add('pod');
      node.pod('a', { limit: 192, anon: 20, cache: 100 });
      memory = node.pod('pod', { limit: 192, anon: 20, cache: 100 });
      node.admitUncompared('a', { a: 64, pod: 64 });
    });

    test('is Deferred with its reason from the second time on, and kubelet no longer waits', async () => {
      await tries(1);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress' });
      await tries(1);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred', reason: 'VOLUME_IN_USE', message });
      const { waited, held } = await tries(20);
      expect([waited, held]).toEqual([0, 0]);
      expect(node.deferred).toMatchObject([['a', { reason: 'VOLUME_IN_USE', message }]]);
    });

    test('usage that climbs back is held after growing pauses, and kubelet does not wait', async () => {
      memory.meanwhile = () => {
        if (memory.high === 'max') memory.cache = 100 * MiB;
      };
      await tries(2);
      const { waited, held } = await tries(15);
      expect(waited).toBe(0);
      expect(held).toBeLessThan(75);
      expect(held).toBeGreaterThan(10);
      // kubelet tries no more.
      await node.pass(8 * 60_000);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred', reason: 'VOLUME_IN_USE' });
      expect(node.deferred.map(([, report]) => report.message.replace(/^given up after 10 minutes: /, ''))).toEqual(
        node.deferred.map(() => message),
      );
    });

    test('is forgotten once another request is not refused', async () => {
      await tries(2);
      await node.take('a');
      node.refusals.delete('a');
      node.release('a');
      await node.pass(1000);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress' });
    });
  });

  test('a request while the journal is written waits until the hold is over', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
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
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.high = 'max';
    memory.cache = 100 * MiB;
    await node.pass(5000);
    expect(await highestIn(memory, 3)).toBeLessThan(64);
    expect(node.deferred).toEqual([]);
  });

  test('memory.high set by another program to less is left as it is', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.high = bytes(40 * MiB);
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(memory.high).toBe(40 * MiB);
  });

  test('an unfinished transaction of the pod: no hold before it is recovered', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.unfinished.add('a');
    node.admit('a', 64);
    await node.pass(10_000);
    expect([memory.highs, node.deferred]).toEqual([[], []]);
    node.unfinished.delete('a');
    await node.pass(2000);
    expect(memory.high).not.toBe('max');
  });

  test('a journal that cannot be written: memory.high stays, Deferred with the reason', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.journalFault = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'the disk is full');
    node.admit('a', 64);
    await node.pass(2000);
    expect(memory.highs).toEqual([]);
    expect(node.deferred).toMatchObject([['a', { reason: 'JOURNAL_UNAVAILABLE' }]]);
    expect(node.deferred[0]?.[1].message).toContain('usage cannot be held below it: the disk is full');
  });

  test('memory.high of an earlier hold that cannot be restored stays in the journal', async () => {
    node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.journal.set('a', new Map([['a', bytes(180 * MiB)]]));
    node.journalFault = new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, 'memory.high cannot be written');
    node.admit('a', 64);
    await node.pass(2000);
    expect(node.deferred).toMatchObject([['a', { reason: 'CGROUP_WRITE_FAILED' }]]);
    expect(node.journal.get('a')).toEqual(new Map([['a', 180 * MiB]]));
  });

  test('memory.high that cannot be restored is left to a recovery, though nothing is pending any more', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.beforeHigh = () => Promise.reject(new Error('EIO'));
    expect(node.kubeletTries('a')).toBe(true);
    node.reclaimer.check();
    await node.pass(2000);
    expect([node.left, node.journal.get('a'), node.clock.next]).toEqual([['a'], new Map([['a', 'max']]), undefined]);
  });

  test('a hold whose end cannot be journalled is left to a recovery', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    node.beforeEnd = Promise.reject(new Error('the disk is full'));
    node.beforeEnd.catch(() => undefined);
    node.kubeletTries('a');
    node.reclaimer.check();
    await node.settle();
    expect([memory.high, node.left]).toEqual(['max', ['a']]);
  });

  test('closed: resolves with memory.high as it was', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    await node.reclaimer.close();
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
  });

  test('removed: memory.high is as it was', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    node.reclaimer.podRemoved('a');
    await node.settle();
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
  });

  test('kubelet writes its files all the time: the hold goes on', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    for (let n = 0; n < 100; n += 1) {
      await node.pass(50);
      node.writeEntry('a');
    }
    expect(events()).toEqual({ stuck: 1, held: 1 });
    expect(memory.readMemoryCurrent()).toBeLessThan(64 * MiB);
  });
});
