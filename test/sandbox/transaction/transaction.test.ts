import { describe, expect, test } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { type StepActions, runTransaction } from '../../../src/sandbox/transaction/transaction.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { type Step, describeStep } from '../../../src/sandbox/plan/step.ts';

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
    rollBack: (step) => act('undo', step, failing.undo),
    skipped: (step) => void calls.push(`skip ${describeStep(step)}`),
  };
  return { actions, calls };
}

describe('runTransaction', () => {
  test('applies the steps in the order of the plan, and returns the time of each', async () => {
    const { actions, calls } = recorder();
    const records = await runTransaction([shrink, raise, runtime, lower, grow], actions);
    expect(records.map(({ step }) => step)).toEqual([shrink, raise, runtime, lower, grow]);
    expect(calls).toEqual(records.map(({ step }) => `run ${describeStep(step)}`));
    for (const [before, after] of records.slice(1).map((record, index) => [records[index]!, record] as const)) {
      expect(after.at).toBeGreaterThanOrEqual(before.at + before.ms - 0.001);
    }
  });

  test('stops at the first failing step, and rolls back the applied steps in reverse', async () => {
    const { actions, calls } = recorder({ run: [runtime] });
    await expect(runTransaction([shrink, raise, runtime, lower], actions)).rejects.toThrow('run of runtime failed');
    expect(calls).toEqual([
      'run volume cache 200 -> 100',
      'run pod memory.max 200 -> 300',
      'undo runtime',
      'undo pod memory.max 200 -> 300',
      'undo volume cache 200 -> 100',
    ]);
  });

  test('rethrows the error of a failing step unchanged', async () => {
    const error = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'in use');
    const { actions } = recorder();
    await expect(runTransaction([shrink], { ...actions, apply: () => Promise.reject(error) })).rejects.toBe(error);
  });

  test('continues a rollback past a step that cannot be rolled back, and reports both errors', async () => {
    const { actions, calls } = recorder({ run: [runtime], undo: [raise] });
    const failure = await runTransaction([shrink, raise, runtime], actions).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ShimError);
    expect(failure).toMatchObject({ reason: 'UNDO_FAILED' });
    expect((failure as Error).message).toContain('run of runtime failed');
    expect((failure as Error).message).toContain('undo of pod memory.max 200 -> 300 failed');
    expect(calls.at(-1)).toBe('undo volume cache 200 -> 100');
  });

  test('skips a failing step after the runtime has answered, and applies the rest', async () => {
    const { actions, calls } = recorder({ run: [lower] });
    const records = await runTransaction([runtime, lower, grow], actions);
    expect(records.map(({ step }) => step)).toEqual([runtime, grow]);
    expect(calls).toEqual(['run runtime', 'skip pod memory.max 300 -> 250', 'run volume cache 100 -> 150']);
  });

  test('rolls back on any failing step when the plan has no call to the runtime', async () => {
    const { actions, calls } = recorder({ run: [lower] });
    await expect(runTransaction([raise, lower], actions)).rejects.toThrow('250 failed');
    expect(calls.at(-1)).toBe('undo pod memory.max 200 -> 300');
  });
});
