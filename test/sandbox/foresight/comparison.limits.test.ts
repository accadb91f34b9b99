import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { Comparison, MAX_CALLS, type UsageSource } from '../../../src/sandbox/foresight/comparison.ts';
import { HOLD_MS } from '../../../src/sandbox/foresight/decrease-policy.ts';
import { FakeKubeletNode } from '../../support/fake-decreasing-pod.ts';
import { FakeClock } from '../../support/resize/fake-resizes.ts';

const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

describe('waiting stats calls of kubelet', () => {
  let clock: FakeClock;
  let comparison: Comparison;
  let through: number;
  /** How often a call has looked at what kubelet has admitted. */
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

  test('the next attempt of kubelet waits for cAdvisor if the runtime does not report the usage again', async () => {
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
