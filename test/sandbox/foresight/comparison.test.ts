import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { UsageSource } from '../../../src/sandbox/foresight/comparison.ts';
import { Comparison, MAX_CALLS } from '../../../src/sandbox/foresight/comparison.ts';
import { HOLD_MS } from '../../../src/sandbox/foresight/decrease-policy.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';

describe('comparison by kubelet', () => {
  // kubelet compares a pod's usage with the limits that it has admitted right after it has written them, long before
  // reclaim can help.
  let node: FakeKubeletNode;

  beforeEach(() => {
    node = new FakeKubeletNode();
  });

  afterEach(() => node.reclaimer.close());

  /** Makes kubelet's stats call for pod `a`. Returns a function that reports whether the call has been answered. */
  function calls(source: UsageSource): () => boolean {
    let isThrough = false;
    void Promise.resolve(node.reclaimer.comparable('a', source)).then(() => (isThrough = true));
    return () => isThrough;
  }

  /** A pod whose page cache blocks the decreases of its container and of the pod itself. */
  function blockedPod(): void {
    node.podLevel.add('pod');
    node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.pod('pod', { limit: 192, anon: 20, cache: 100 });
    node.admitted.set('a', { a: 64, pod: 64 });
  }

  describe('a decrease that page cache blocks', () => {
    test('KEP-1287: a decrease blocked by page cache is compared once usage is held and cAdvisor has measured the pod since', async () => {
      blockedPod();
      const isThrough = calls('cadvisor');
      await node.pass(5000);
      expect([node.cgroups.get('pod')!.current < 64 * MiB, node.watched]).toEqual([true, ['pod']]);
      expect(isThrough()).toBe(false);
      node.measure('pod');
      await node.settle();
      // cAdvisor stores what it has read a moment later.
      expect(isThrough()).toBe(false);
      await node.pass(250);
      expect([isThrough(), node.watched]).toEqual([true, []]);
      // A later call uses the new figure.
      const isLaterThrough = calls('cadvisor');
      await node.settle();
      expect(isLaterThrough()).toBe(true);
    });

    test('a decrease is compared as soon as usage is held if only containers have limits', async () => {
      const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
      let letReclaim = (): void => undefined;
      memory.beforeReclaim = () => new Promise((resolve) => (letReclaim = resolve));
      node.admitted.set('a', { a: 64 });
      const isThrough = calls('cadvisor');
      await node.settle();
      expect(isThrough()).toBe(false);
      memory.beforeReclaim = () => Promise.resolve();
      letReclaim();
      await node.pass(1000);
      expect([isThrough(), memory.current < 64 * MiB, node.watched]).toEqual([true, true, []]);
    });

    test('a decrease is compared as soon as usage is held if the runtime has reported the usage of the pod', async () => {
      blockedPod();
      const isPodThrough = calls('runtime');
      const areContainersThrough = calls('cadvisor');
      await node.pass(1000);
      // The call for the pod may fail, and then kubelet uses the figure of cAdvisor.
      expect([isPodThrough(), areContainersThrough()]).toEqual([true, false]);
      node.reclaimer.measuredByRuntime('a');
      await node.settle();
      expect(areContainersThrough()).toBe(true);
    });

    test('KEP-1287: a decrease of a pod that cannot be watched is compared after the longest interval of cAdvisor', async () => {
      node.watchFault = new Error('no watches left');
      blockedPod();
      const isThrough = calls('cadvisor');
      await node.pass(29_900);
      expect(isThrough()).toBe(false);
      await node.pass(1000);
      expect(isThrough()).toBe(true);
    });

    test('KEP-1287: a limit that kubelet admits during a hold is compared once usage is held below that limit', async () => {
      const memory = node.pod('a', { limit: 192, anon: 20, cache: 100 });
      node.admit('a', 96);
      await node.pass(1000);
      const isThrough = calls('cadvisor');
      await node.settle();
      expect([isThrough(), memory.current > 64 * MiB]).toEqual([true, true]);
      // The shim has not been notified of kubelet's file yet.
      node.admitted.set('a', { a: 64 });
      const found: number[] = [];
      void node.reclaimer.comparable('a', 'cadvisor')?.then(() => found.push(memory.current));
      await node.pass(1000);
      expect(found).toEqual([memory.current]);
      expect(memory.current).toBeLessThan(64 * MiB);
    });

    test('KEP-1287: a decrease that cannot be reclaimed is compared although the state files of kubelet keep changing', async () => {
      node.pod('a', { limit: 192, anon: 100, cache: 20 });
      node.admitted.set('a', { a: 64 });
      node.beforeDecreases = async () => {
        node.reclaimer.check();
        await new Promise((resolve) => setImmediate(resolve));
      };
      const isThrough = calls('cadvisor');
      await node.settle();
      expect(isThrough()).toBe(true);
    });

    test('a waiting decrease is compared at once when the shim ends, and so is each later one', async () => {
      blockedPod();
      const isThrough = calls('cadvisor');
      await node.pass(1000);
      expect(isThrough()).toBe(false);
      node.reclaimer.openComparisons();
      await node.settle();
      expect([isThrough(), node.reclaimer.comparable('a', 'cadvisor')]).toEqual([true, undefined]);
    });

    test('a waiting decrease is compared when kubelet admits another limit in the meantime', async () => {
      blockedPod();
      const isThrough = calls('cadvisor');
      await node.pass(5000);
      expect(isThrough()).toBe(false);
      node.admitAll('a', { a: 192, pod: 192 });
      await node.pass(1000);
      expect([isThrough(), node.watched]).toEqual([true, []]);
    });

    test('a waiting decrease is compared when the pod is removed', async () => {
      blockedPod();
      const isThrough = calls('cadvisor');
      await node.pass(5000);
      node.reclaimer.podRemoved('a');
      await node.settle();
      expect([isThrough(), node.watched]).toEqual([true, []]);
    });

    test('a limit that kubelet admits after a Deferred decrease is held again', async () => {
      node.pod('a', { limit: 192, anon: 100, cache: 60 });
      node.admitted.set('a', { a: 64 });
      const isFirstThrough = calls('cadvisor');
      await node.pass(500);
      expect([isFirstThrough(), node.deferred.length]).toEqual([true, 1]);
      node.cgroups.get('a')!.beforeReclaim = () => new Promise(() => undefined);
      node.admitted.set('a', { a: 128 });
      const isThrough = calls('cadvisor');
      await node.pass(500);
      expect(isThrough()).toBe(false);
    });

    test('a decrease waits for a new measurement after a request has interrupted its hold', async () => {
      blockedPod();
      const isThrough = calls('cadvisor');
      await node.pass(5000);
      await node.take('a');
      await node.pass(1000);
      expect([isThrough(), node.watched]).toEqual([false, []]);
      node.release('a');
      await node.pass(5000);
      expect([isThrough(), node.watched]).toEqual([false, ['pod']]);
      node.measure('pod');
      await node.pass(250);
      expect(isThrough()).toBe(true);
    });
  });

  describe('a call before the admitted limits are read', () => {
    let read: () => void;
    let reading: Promise<void>;
    beforeEach(() => {
      reading = new Promise((resolve) => (read = resolve));
      node.pod('a', { limit: 192, anon: 20, cache: 100 });
    });

    test('a call waits until the admitted limits are read, and then until usage is held', async () => {
      const found: number[] = [];
      void node.reclaimer.comparable('a', 'cadvisor', reading)?.then(() => found.push(node.cgroups.get('a')!.current));
      await node.pass(1000);
      expect(found).toEqual([]);
      node.admitted.set('a', { a: 64 });
      read();
      await node.pass(1000);
      expect(found).toHaveLength(1);
      expect(found[0]).toBeLessThan(64 * MiB);
    });

    test('a call is forwarded once the admitted limits are read if nothing is pending', async () => {
      let isThrough = false;
      void node.reclaimer.comparable('a', 'cadvisor', reading)?.then(() => (isThrough = true));
      await node.settle();
      expect(isThrough).toBe(false);
      read();
      await node.settle();
      expect(isThrough).toBe(true);
    });

    test('a call that waits for the admitted limits is forwarded at once when the shim ends', async () => {
      const waiting = node.reclaimer.comparable('a', 'cadvisor', reading);
      node.reclaimer.openComparisons();
      await expect(waiting).resolves.toBeUndefined();
      expect(node.reclaimer.comparable('a', 'cadvisor', reading)).toBeUndefined();
    });
  });

  describe('comparisons without a wait', () => {
    test('kubelet compares at once without a pending decrease', async () => {
      node.pod('a', { limit: 192, anon: 20, cache: 100 });
      const isThrough = calls('cadvisor');
      await node.settle();
      expect(isThrough()).toBe(true);
    });

    test('kubelet compares at once if usage is below the new limit', async () => {
      node.pod('a', { limit: 192, anon: 20, cache: 10 });
      node.admitted.set('a', { a: 64 });
      const isThrough = calls('cadvisor');
      await node.settle();
      expect([isThrough(), node.cgroups.get('a')?.high]).toEqual([true, 'max']);
    });

    test('KEP-1287: kubelet compares a decrease at once if unreclaimable memory is above the new limit', async () => {
      node.pod('a', { limit: 192, anon: 100, cache: 20 });
      node.admitted.set('a', { a: 64 });
      const isThrough = calls('cadvisor');
      await node.settle();
      expect([isThrough(), node.deferred.length]).toEqual([true, 1]);
    });

    test('KEP-1287: kubelet compares a decrease early if usage does not fall while it is reclaimed', async () => {
      const memory = node.pod('a', { limit: 192, anon: 20, cache: 100, stuck: 60 });
      node.admitted.set('a', { a: 64 });
      const isThrough = calls('cadvisor');
      await node.pass(2000);
      expect(isThrough()).toBe(false);
      await node.pass(3000);
      expect([isThrough(), memory.high === 'max', node.deferred.length]).toEqual([true, false, 1]);
      expect(node.deferred[0]?.[1].reason).toBe('RECLAIM_TIMEOUT');
    });
  });
});

const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

describe('waiting stats calls of kubelet', () => {
  let clock: FakeClock;
  let comparison: Comparison;
  let through: number;
  /** Number of reads of kubelet's admitted limits. */
  let looks: number;
  beforeEach(() => {
    clock = new FakeClock();
    const never = (): Promise<never> => new Promise(() => undefined);
    comparison = new Comparison({ tree: { watchMeasuring: never }, clock, log: noLog });
    [through, looks] = [0, 0];
  });

  const call = (recheck: () => Promise<boolean> = () => Promise.resolve(true)): void => {
    const look = (): Promise<boolean> => {
      looks += 1;
      return recheck();
    };
    void comparison.ready('cadvisor', look).then(() => (through += 1));
  };

  test('a stats call of kubelet is forwarded after the longest hold, even if usage is never below the limits', async () => {
    call();
    await settle();
    clock.pass(HOLD_MS - 1);
    await settle();
    expect(through).toBe(0);
    clock.pass(1);
    await settle();
    expect(through).toBe(1);
  });

  test('a call is forwarded after the longest hold even if a check never ends, and does not check again', async () => {
    call(() => comparison.nextCheck());
    await settle();
    clock.pass(HOLD_MS);
    await settle();
    expect([through, looks]).toEqual([1, 1]);
    comparison.holdBegins();
    await settle();
    expect(looks).toBe(1);
  });

  test('calls beyond the maximum number of waiting calls are forwarded at once', async () => {
    for (let calls = 0; calls < MAX_CALLS; calls += 1) call();
    await settle();
    expect(through).toBe(0);
    call();
    await settle();
    expect([through, looks]).toEqual([1, MAX_CALLS]);
    comparison.open();
    await settle();
    expect(through).toBe(MAX_CALLS + 1);
    comparison.block();
    call();
    await settle();
    expect(through).toBe(MAX_CALLS + 1);
  });

  test('a forwarded call leaves no timer', async () => {
    call();
    await settle();
    comparison.open();
    await settle();
    expect([through, clock.next]).toEqual([1, undefined]);
    comparison.block();
    call();
    await settle();
    comparison.openForGood();
    await settle();
    expect([through, clock.next]).toEqual([2, undefined]);
  });
});

describe('usage of a pod that the runtime has reported', () => {
  let node: FakeKubeletNode;
  beforeEach(async () => {
    node = new FakeKubeletNode();
    node.podLevel.add('pod');
    node.pod('a', { limit: 192, anon: 20, cache: 100 });
    node.pod('pod', { limit: 192, anon: 20, cache: 100 });
    node.admitted.set('a', { a: 64, pod: 64 });
    const isThrough = calls('cadvisor');
    await node.pass(1000);
    node.reclaimer.measuredByRuntime('a');
    await node.settle();
    expect(isThrough()).toBe(true);
  });
  afterEach(() => node.reclaimer.close());

  const calls = (source: UsageSource): (() => boolean) => {
    let isThrough = false;
    void Promise.resolve(node.reclaimer.comparable('a', source)).then(() => (isThrough = true));
    return () => isThrough;
  };

  test('the next resize attempt of kubelet waits for cAdvisor if the runtime does not report the usage again', async () => {
    const isPodThrough = calls('runtime');
    await node.settle();
    const isThrough = calls('cadvisor');
    await node.pass(1000);
    expect([isPodThrough(), isThrough()]).toEqual([true, false]);
    node.measure('pod');
    await node.pass(250);
    expect(isThrough()).toBe(true);
  });

  test('a usage report by the runtime during an earlier hold does not count for the next hold', async () => {
    node.admitAll('a', { a: 48, pod: 48 });
    await node.pass(500);
    const isThrough = calls('cadvisor');
    await node.pass(1000);
    expect([isThrough(), node.watched]).toEqual([false, ['pod']]);
  });
});
