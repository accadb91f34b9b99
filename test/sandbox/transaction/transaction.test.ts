import { describe, expect, test } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { type StepActions, StepSequence } from '../../../src/sandbox/transaction/transaction.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { type Step, type StepRecord, describeStep } from '../../../src/sandbox/plan/step.ts';

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

/** Applies the steps as a transaction does, with the caller's own call if they have it. */
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
