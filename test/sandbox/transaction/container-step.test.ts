import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { ShimError } from '../../../src/core/errors.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { ContainerStep } from '../../../src/sandbox/plan/step.ts';
import { PodActions } from '../../../src/sandbox/transaction/actions.ts';
import { updateAndVerify } from '../../../src/sandbox/transaction/container-step.ts';
import { ROLLBACK_MS } from '../../../src/sandbox/transaction/lower-memory.ts';
import type { StepActions } from '../../../src/sandbox/transaction/transaction.ts';
import { eventually } from '../../support/fake-clock.ts';
import { containerId, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { CONTAINER_SCOPE, roundedStep, setQuota, startSystemdPod } from '../../support/resize/systemd-pod.ts';

/** Updates that wait for another update of their container by the runtime. */

const ID = containerId(0);
const CGROUP = `/kubepods/pod1/${ID}`;
const step: ContainerStep = { kind: 'container', id: ID, memory: { from: bytes(100 * MiB), to: bytes(50 * MiB) } };

let runtime: FakeRuntime;
/** Ends the other update. */
let end: () => void;
let other: Promise<void>;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.applyUpdates();
  use(30);
  const ended = Promise.withResolvers<undefined>();
  end = () => ended.resolve(undefined);
  other = runtime.node.calls.run(ID, () => ended.promise);
});
afterEach(async () => {
  vi.useRealTimers();
  end();
  await other;
  await runtime.close();
});

function use(anon: number): void {
  runtime.writeFile(CGROUP, 'memory.stat', `anon ${anon * MiB}\nshmem 0\nunevictable 0\nfile 0`);
  runtime.writeFile(CGROUP, 'memory.current', String(anon * MiB));
}

async function actions(ms: number): Promise<StepActions> {
  const pod = (await runtime.node.registry.pod(SANDBOX))!;
  const onHigh = (): Promise<void> => Promise.resolve();
  const deadline = performance.now() + ms;
  return new PodActions(runtime.node, pod, { updates: [step], until: deadline, deadline, onHigh });
}

const outcomeOf = (applied: Promise<void>): Promise<unknown> =>
  applied.then(
    () => 'applied',
    (error: unknown) => (error instanceof ShimError ? error.reason : error),
  );

const isWaiting = (): Promise<void> => vi.waitFor(() => expect(runtime.node.calls.waiting(ID)).toBe(1), LONG_WAIT);
const updates = (): number => runtime.calls.filter((method) => method === 'UpdateContainerResources').length;

describe('a lower memory limit that waits for another update of the container', () => {
  test('a memory limit is not lowered if unreclaimable memory exceeds the new limit after another update', async () => {
    const outcome = outcomeOf((await actions(60_000)).apply(step));
    await isWaiting();
    use(80);
    end();
    expect(await outcome).toBe('MEMORY_NOT_RECLAIMABLE');
    expect([runtime.limitOf(0), runtime.read(`${ID}/memory.high`), updates()]).toEqual([100 * MiB, 'max', 0]);
  });

  test('a memory limit is lowered after another update if usage is still low', async () => {
    const outcome = outcomeOf((await actions(60_000)).apply(step));
    await isWaiting();
    end();
    expect(await outcome).toBe('applied');
    expect([runtime.limitOf(0), runtime.read(`${ID}/memory.high`)]).toEqual([50 * MiB, 'max']);
  });

  test('a lower memory limit, and its rollback, wait for another update no longer than the reclaim timeout', async () => {
    const running = await actions(300);
    expect(await outcomeOf(running.apply(step))).toBe('RECLAIM_TIMEOUT');
    await running.rollBack(step);
    expect(runtime.node.calls.isHeld(ID)).toBe(true);
    expect(runtime.read(`${ID}/memory.high`)).toBe('max');
    end();
    await runtime.node.calls.run(ID, () => Promise.resolve());
    expect([runtime.limitOf(0), updates()]).toEqual([100 * MiB, 0]);
  });
});

const cpu = (quota: number) => ({ quota: microseconds(quota), period: microseconds(100_000) });
const others: readonly (readonly [string, ContainerStep])[] = [
  ['a higher memory limit', { kind: 'container', id: ID, memory: { from: bytes(100 * MiB), to: bytes(150 * MiB) } }],
  ['another CPU limit', { kind: 'container', id: ID, cpu: { from: cpu(10_000), to: cpu(20_000) } }],
];

describe.each(others)('%s that waits for another update of the container', (_what, wanted) => {
  const found = (): unknown[] => [runtime.limitOf(0), runtime.read(`${ID}/cpu.max`), updates()];
  const before = [100 * MiB, '10000 100000', 0];

  test('a limit, and its rollback, wait for another update of the container no longer than the deadline', async () => {
    const running = await actions(300);
    expect(await outcomeOf(running.apply(wanted))).toBe('DEADLINE');
    await running.rollBack(wanted);
    expect([runtime.node.calls.isHeld(ID), runtime.node.calls.waiting(ID)]).toEqual([true, 0]);
    end();
    await runtime.node.calls.run(ID, () => Promise.resolve());
    expect(found()).toEqual(before);
  });

  test('a limit is set when another update of the container ends in time', async () => {
    const outcome = outcomeOf((await actions(60_000)).apply(wanted));
    await isWaiting();
    end();
    expect(await outcome).toBe('applied');
    expect(updates()).toBe(1);
  });
});

test('a rollback that waits for another update of the container fails after the time limit of a rollback', async () => {
  end();
  await other;
  const [[, raise] = ['', step]] = others;
  const running = await actions(60_000);
  await running.apply(raise);
  const ended = Promise.withResolvers<undefined>();
  end = () => ended.resolve(undefined);
  other = runtime.node.calls.run(ID, () => ended.promise);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const isSettled = vi.fn();
  const rejected = expect(running.rollBack(raise).finally(isSettled)).rejects.toThrow('busy with another update');
  // Unlike expect.poll, this does not advance the fake time.
  await eventually(() => runtime.node.calls.waiting(ID) === 1);
  await vi.advanceTimersByTimeAsync(ROLLBACK_MS - 1);
  expect(isSettled).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);
  await rejected;
  expect(runtime.limitOf(0)).toBe(150 * MiB);
  end();
  // Fake time does not advance during the rollback.
  await running.rollBack(raise);
  expect(runtime.limitOf(0)).toBe(100 * MiB);
});

test('updateAndVerify accepts a quota that systemd has rounded, and rejects any other difference', async () => {
  const systemd = await startSystemdPod();
  onTestFinished(() => systemd.close());
  const pod = (await systemd.node.registry.pod(SANDBOX))!;
  const sets = (value: number): void =>
    systemd.on('UpdateContainerResources', () => {
      setQuota(systemd, CONTAINER_SCOPE, value);
      return Buffer.alloc(0);
    });
  sets(35_000);
  await updateAndVerify(systemd.node, pod, roundedStep);
  sets(36_000);
  const error = { reason: 'CGROUP_WRITE_FAILED', context: { asked: '34560', found: '36000' } };
  await expect(updateAndVerify(systemd.node, pod, roundedStep)).rejects.toMatchObject(error);
});
