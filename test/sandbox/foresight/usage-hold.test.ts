import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
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
  test('hot page cache is held below the limit until kubelet tries, and memory.high is restored afterwards', async () => {
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

  test('hot page cache of a container and its pod is held below both limits until kubelet admits other values', async () => {
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

  test('a decrease is Deferred if the usage of the pod cannot be lowered, although its container is held', async () => {
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

  /** Page cache that returns at once when memory.high is restored. */
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

  test('the report after a hold contains the usage during the hold, below the limit', async () => {
    rushing(node.hotPod('a', { limit: 192, anon: 20, hot: 100 }));
    node.admit('a', 64);
    const found = (await messagesIn(602)).flatMap((message) => {
      const figures = /container a: .* held below it for 60 s: (\d+) bytes/.exec(message);
      return figures === null ? [] : [Number(figures[1])];
    });
    expect(found.length).toBeGreaterThan(0);
    expect(Math.max(...found)).toBeLessThan(64 * MiB);
  });

  test('KEP-1287: a held decrease that kubelet does not try for a minute is Deferred with figures, and held again later', async () => {
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

  test('KEP-1287: usage is held below the new limit for ten minutes at most', async () => {
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
  test('KEP-1287: memory.high follows unreclaimable memory that grows during a hold, so that the process is not delayed', async () => {
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

  test('KEP-1287: a hold ends, and the decrease is Deferred with figures, if unreclaimable memory comes close to the limit', async () => {
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

  test('a decrease with unreclaimable memory 3 MiB below the limit is held, since it fits', async () => {
    const memory = node.pod('a', { limit: 192, anon: 61, cache: 40 });
    node.admit('a', 64);
    await node.pass(3000);
    expect([memory.current < 64 * MiB, node.deferred]).toEqual([true, []]);
    expect(events()).toEqual({ stuck: 1, held: 1 });
  });
});

describe('a hold with requests, failures and other programs', () => {
  test('a request for the pod starts with the original memory.high, and the hold continues after it', async () => {
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

  describe('an update of kubelet that fails repeatedly', () => {
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

    test('a decrease whose update fails twice is Deferred with the reason, and kubelet no longer waits', async () => {
      await tries(1);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress' });
      await tries(1);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred', reason: 'VOLUME_IN_USE', message });
      const { waited, held } = await tries(20);
      expect([waited, held]).toEqual([0, 0]);
      expect(node.deferred).toMatchObject([['a', { reason: 'VOLUME_IN_USE', message }]]);
    });

    test('after repeated failures, usage that climbs back is held with growing pauses, and kubelet does not wait', async () => {
      memory.meanwhile = () => {
        if (memory.high === 'max') memory.cache = 100 * MiB;
      };
      await tries(2);
      const { waited, held } = await tries(15);
      expect(waited).toBe(0);
      expect(held).toBeLessThan(75);
      expect(held).toBeGreaterThan(10);
      // kubelet does not try any more.
      await node.pass(8 * 60_000);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'Deferred', reason: 'VOLUME_IN_USE' });
      expect(node.deferred.map(([, report]) => report.message.replace(/^given up after 10 minutes: /, ''))).toEqual(
        node.deferred.map(() => message),
      );
    });

    test('a failed update is forgotten once a later request is not rejected', async () => {
      await tries(2);
      await node.take('a');
      node.refusals.delete('a');
      node.release('a');
      await node.pass(1000);
      expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress' });
    });
  });

  test('KEP-1287: a request during the journal write of a hold waits until the hold is over', async () => {
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

  test('releasing a pod without a hold does not wait', () => {
    expect(node.reclaimer.release('a')).toBeUndefined();
  });

  test('KEP-1287: usage is held again after another program has raised memory.high', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.high = 'max';
    memory.cache = 100 * MiB;
    await node.pass(5000);
    expect(await highestIn(memory, 3)).toBeLessThan(64);
    expect(node.deferred).toEqual([]);
  });

  test('KEP-1287: memory.high stays if another program has set it below the value of a hold', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.high = bytes(40 * MiB);
    expect(node.kubeletTries('a')).toBe(true);
    await node.pass(2000);
    expect(memory.high).toBe(40 * MiB);
  });

  test('KEP-1287: a hold begins only after an unfinished transaction of the pod is recovered', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.unfinished.add('a');
    node.admit('a', 64);
    await node.pass(10_000);
    expect([memory.highs, node.deferred]).toEqual([[], []]);
    node.unfinished.delete('a');
    await node.pass(2000);
    expect(memory.high).not.toBe('max');
  });

  test('if the journal cannot be written, memory.high stays and the decrease is Deferred with the reason', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.journalFault = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'the disk is full');
    node.admit('a', 64);
    await node.pass(2000);
    expect(memory.highs).toEqual([]);
    expect(node.deferred).toMatchObject([['a', { reason: 'JOURNAL_UNAVAILABLE' }]]);
    expect(node.deferred[0]?.[1].message).toContain('usage cannot be held below it: the disk is full');
  });

  test('memory.high of an earlier hold stays in the journal if it cannot be restored', async () => {
    node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.journal.set('a', new Map([['a', bytes(180 * MiB)]]));
    node.journalFault = new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, 'memory.high cannot be written');
    node.admit('a', 64);
    await node.pass(2000);
    expect(node.deferred).toMatchObject([['a', { reason: 'CGROUP_WRITE_FAILED' }]]);
    expect(node.journal.get('a')).toEqual(new Map([['a', 180 * MiB]]));
  });

  test('memory.high that cannot be restored is left to recovery, even if nothing is pending', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    memory.beforeHigh = () => Promise.reject(new Error('EIO'));
    expect(node.kubeletTries('a')).toBe(true);
    node.reclaimer.check();
    await node.pass(2000);
    expect([node.left, node.journal.get('a'), node.clock.next]).toEqual([['a'], new Map([['a', 'max']]), undefined]);
  });

  test('a hold is left to recovery if its end cannot be written to the journal', async () => {
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

  test('closing the reclaimer restores memory.high', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    await node.reclaimer.close();
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
  });

  test('removing a pod restores its memory.high', async () => {
    const memory = node.hotPod('a', { limit: 192, anon: 20, hot: 100 });
    node.admit('a', 64);
    await node.pass(3000);
    node.reclaimer.podRemoved('a');
    await node.settle();
    expect([memory.high, node.journal.size]).toEqual(['max', 0]);
  });

  test('a hold continues while kubelet writes its files all the time', async () => {
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
    // Usage grows faster than memory.high reclaims.
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
    // The process frees the memory once memory.high is restored.
    memory.afterHigh = (value) => {
      if (value === 'max') memory.anon = 20 * MiB;
      return Promise.resolve();
    };
    expect(await timeToDefer()).toBeLessThan(5000);
    expect(note()).toContain(`but ${63 * MiB} bytes are in use that cannot be reclaimed`);
  });

  test('KEP-1287: a decrease is Deferred within 5 s, with usage in the message, if reclaim does not lower usage, and reclaim continues', async () => {
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
  /** Writes the state, which causes six checks within 300 ms. */
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
    // The first decrease occupies the slot, and its usage does not fall.
    expect(node.deferred.map(([uid]) => uid)).toContain('x');
    expect(node.reclaimer.reportOf('a')).toMatchObject({ state: 'InProgress' });
    expect(memory.asked).toEqual([]);
    end.resolve(undefined);
    await node.pass(10_000);
    expect(memory.current).toBe(56 * MiB);
    expect(node.deferred.some(([uid]) => uid === 'a')).toBe(false);
  });
});
