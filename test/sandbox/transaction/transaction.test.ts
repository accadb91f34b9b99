import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { Step, StepRecord } from '../../../src/sandbox/plan/step.ts';
import { describeStep } from '../../../src/sandbox/plan/step.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import type { StepActions } from '../../../src/sandbox/transaction/transaction.ts';
import { StepSequence } from '../../../src/sandbox/transaction/transaction.ts';
import { FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { ANSWER, ContainerUpdates } from '../../support/resize/resized-pod.ts';

const shrink: Step = { kind: 'volume', volume: 'cache', from: bytes(200), to: bytes(100) };
const raise: Step = { kind: 'pod-memory', from: bytes(200), to: bytes(300) };
const runtime: Step = { kind: 'runtime' };
const lower: Step = { kind: 'pod-memory', from: bytes(300), to: bytes(250) };
const grow: Step = { kind: 'volume', volume: 'cache', from: bytes(100), to: bytes(150) };

/** Actions that only record their calls; `failing` lists the steps that fail. */
function recorder(failing: { run?: readonly Step[]; undo?: readonly Step[] } = {}) {
  const calls: string[] = [];
  const act = (what: string, step: Step, fails: readonly Step[] = []): Promise<void> => {
    if (fails.includes(step)) return Promise.reject(new Error(`${what} of ${describeStep(step)} failed`));
    calls.push(`${what} ${describeStep(step)}`);
    return Promise.resolve();
  };
  const actions: StepActions = {
    apply: (step) => act('run', step, failing.run),
    async call(step, call) {
      await act('run', step, failing.run);
      return call(undefined);
    },
    rollBack: (step) => act('undo', step, failing.undo),
  };
  return { actions, calls };
}

/** Applies the steps as a transaction does, and makes the caller's own call if the steps include one. */
async function carryOut(
  steps: readonly Step[],
  { actions, calls }: ReturnType<typeof recorder>,
  late?: (step: Step) => Error | undefined,
): Promise<readonly StepRecord[]> {
  const skipped = (step: Step): void => void calls.push(`skip ${describeStep(step)}`);
  const sequence = new StepSequence(steps, actions, { skipped, ...(late && { late }) });
  try {
    await sequence.apply();
    if (steps.includes(runtime)) {
      expect(await sequence.call(() => Promise.resolve('answer'))).toBe('answer');
      await sequence.applyRest();
    }
    return sequence.records;
  } catch (error) {
    throw await sequence.rollBack(error);
  }
}

describe('StepSequence', () => {
  test('a transaction applies the steps in the order of the plan, and records the time of each', async () => {
    const recorded = recorder();
    const { calls } = recorded;
    const records = await carryOut([shrink, raise, runtime, lower, grow], recorded);
    expect(records.map(({ step }) => step)).toEqual([shrink, raise, runtime, lower, grow]);
    expect(calls).toEqual(records.map(({ step }) => `run ${describeStep(step)}`));
    for (const [before, after] of records.slice(1).map((record, index) => [records[index]!, record] as const)) {
      expect(after.at).toBeGreaterThanOrEqual(before.at + before.ms - 0.001);
    }
  });

  test('KEP-1287: the first failing step stops the rest, and the applied steps are rolled back in reverse', async () => {
    const recorded = recorder({ run: [runtime] });
    const { calls } = recorded;
    await expect(carryOut([shrink, raise, runtime, lower], recorded)).rejects.toThrow('run of runtime failed');
    expect(calls).toEqual([
      'run volume cache 200 -> 100',
      'run pod memory.max 200 -> 300',
      'undo runtime',
      'undo pod memory.max 200 -> 300',
      'undo volume cache 200 -> 100',
    ]);
  });

  test('the error of a failing step is thrown unchanged', async () => {
    const error = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'in use');
    const { actions, calls } = recorder();
    const failing = { actions: { ...actions, apply: () => Promise.reject(error) }, calls };
    await expect(carryOut([shrink], failing)).rejects.toBe(error);
  });

  test('a rollback continues after a step that cannot be rolled back, and reports both errors', async () => {
    const recorded = recorder({ run: [runtime], undo: [raise] });
    const { calls } = recorded;
    const failure = await carryOut([shrink, raise, runtime], recorded).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ShimError);
    expect(failure).toMatchObject({ reason: 'UNDO_FAILED' });
    expect((failure as Error).message).toContain('run of runtime failed');
    expect((failure as Error).message).toContain('undo of pod memory.max 200 -> 300 failed');
    expect(calls.at(-1)).toBe('undo volume cache 200 -> 100');
  });

  test('a step that fails after the runtime has answered is skipped, and the rest is applied', async () => {
    const recorded = recorder({ run: [lower] });
    const { calls } = recorded;
    const records = await carryOut([runtime, lower, grow], recorded);
    expect(records.map(({ step }) => step)).toEqual([runtime, grow]);
    expect(calls).toEqual(['run runtime', 'skip pod memory.max 300 -> 250', 'run volume cache 100 -> 150']);
  });

  test('a plan without a call to the runtime is rolled back if any step fails', async () => {
    const recorded = recorder({ run: [lower] });
    const { calls } = recorded;
    await expect(carryOut([raise, lower], recorded)).rejects.toThrow('250 failed');
    expect(calls.at(-1)).toBe('undo pod memory.max 200 -> 300');
  });

  test('no step begins after the deadline, and the applied steps are rolled back', async () => {
    const recorded = recorder();
    const late = (step: Step): Error | undefined => (step === runtime ? new Error('too late') : undefined);
    await expect(carryOut([raise, runtime, lower], recorded, late)).rejects.toThrow('too late');
    expect(recorded.calls).toEqual(['run pod memory.max 200 -> 300', 'undo pod memory.max 200 -> 300']);
  });

  test('a step after the call is skipped when the caller refuses it', async () => {
    const { actions, calls } = recorder();
    const skipped: unknown[] = [];
    const sequence = new StepSequence([runtime, lower, grow], actions, {
      skipped: (step, error) => void skipped.push([step, (error as Error).message]),
    });
    await sequence.call(() => Promise.resolve());
    await sequence.applyRest((step) => (step === lower ? new Error('refused') : undefined));
    expect([calls, skipped]).toEqual([['run runtime', 'run volume cache 100 -> 150'], [[lower, 'refused']]]);
  });
});

describe('a failure to restore memory.high of the pod after the response', () => {
  const POD = '/kubepods/pod1';
  let runtime: FakeRuntime;
  let updates: ContainerUpdates;
  let pod: PodDescription;
  /** Whether memory.high of the pod cannot be restored. */
  let isStuck: boolean;

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    updates = new ContainerUpdates(runtime);
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
    pod = (await runtime.node.registry.pod(SANDBOX))!;
    isStuck = true;
    const { tree } = runtime.node;
    const write = tree.write.bind(tree);
    vi.spyOn(tree, 'write').mockImplementation((cgroup, change) =>
      isStuck && cgroup === POD && change.file === 'memory.high' && change.value === 'max'
        ? Promise.reject(new Error('EIO: i/o error'))
        : write(cgroup, change),
    );
  });

  afterEach(() => runtime.close());

  const left = () => runtime.node.journal.transactionOf(pod);
  const found = (): string[] => [runtime.read('memory.max'), runtime.read('memory.high')];

  beforeEach(async () => {
    expect(await updates.update(50 * MiB)).toBe(ANSWER);
    expect(found()).toEqual([String(250 * MiB), expect.not.stringMatching('max')]);
  });

  test('a memory.high of the pod that could not be restored stays in the journal, and recovery restores it', async () => {
    expect(left()).toMatchObject({ steps: [], highs: [{ cgroup: POD, memoryHigh: 'max' }] });
    expect(left()?.failed).toMatch(/EIO/);
    isStuck = false;
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([String(250 * MiB), 'max']);
    expect(left()).toBeUndefined();
  });

  test('a memory.high of the pod stays in the journal after a further update, until it can be restored', async () => {
    await updates.update(60 * MiB);
    expect(left()).toMatchObject({ steps: [], highs: [{ cgroup: POD, memoryHigh: 'max' }] });
    isStuck = false;
    await updates.update(70 * MiB);
    expect(found()).toEqual([String(270 * MiB), 'max']);
    expect(left()).toBeUndefined();
  });
});
