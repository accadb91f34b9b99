import { describe, expect, test } from 'vitest';
import { Code, Reason, ShimError } from '../../../src/core/errors/index.ts';
import { KeyedLock } from '../../../src/core/concurrency/lock.ts';
import { type StepActions, runTransaction } from '../../../src/resize/execute/transaction.ts';
import { bytes } from '../../../src/core/quantities/index.ts';
import { type Step, describeStep } from '../../../src/resize/model/step.ts';

const shrink: Step = { kind: 'volume', volume: 'cache', from: bytes(200), to: bytes(100) };
const raise: Step = { kind: 'pod-memory', from: bytes(200), to: bytes(300) };
const runtime: Step = { kind: 'runtime' };
const lower: Step = { kind: 'pod-memory', from: bytes(300), to: bytes(250) };
const grow: Step = { kind: 'volume', volume: 'cache', from: bytes(100), to: bytes(150) };

/** Actions that only take down what was done; `failing` says what fails. */
function recorder(failing: { run?: readonly Step[]; undo?: readonly Step[] } = {}) {
  const done: string[] = [];
  const act = (what: string, step: Step, fails: readonly Step[] = []): Promise<void> => {
    if (fails.includes(step)) return Promise.reject(new Error(`${what} of ${describeStep(step)} failed`));
    done.push(`${what} ${describeStep(step)}`);
    return Promise.resolve();
  };
  const actions: StepActions = {
    apply: (step) => act('run', step, failing.run),
    rollBack: (step) => act('undo', step, failing.undo),
    skipped: (step) => void done.push(`skip ${describeStep(step)}`),
  };
  return { actions, done };
}

describe('a plan is carried out', () => {
  test('in its order, each step with its time', async () => {
    const { actions, done } = recorder();
    const records = await runTransaction([shrink, raise, runtime, lower, grow], actions);
    expect(records.map(({ step }) => step)).toEqual([shrink, raise, runtime, lower, grow]);
    expect(done).toEqual(records.map(({ step }) => `run ${describeStep(step)}`));
    for (const [before, after] of records.slice(1).map((record, index) => [records[index]!, record] as const)) {
      expect(after.at).toBeGreaterThanOrEqual(before.at + before.ms - 0.001);
    }
  });

  test('the first failing step stops the rest, and what was done is undone in reverse', async () => {
    const { actions, done } = recorder({ run: [runtime] });
    await expect(runTransaction([shrink, raise, runtime, lower], actions)).rejects.toThrow('run of runtime failed');
    expect(done).toEqual([
      'run volume cache 200 -> 100',
      'run pod memory.max 200 -> 300',
      'undo runtime',
      'undo pod memory.max 200 -> 300',
      'undo volume cache 200 -> 100',
    ]);
  });

  test('the error is thrown on as it is', async () => {
    const error = new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'in use');
    const { actions } = recorder();
    await expect(runTransaction([shrink], { ...actions, apply: () => Promise.reject(error) })).rejects.toBe(error);
  });

  test('undoing goes on past a step that cannot be undone, and both errors are told', async () => {
    const { actions, done } = recorder({ run: [runtime], undo: [raise] });
    const failure = await runTransaction([shrink, raise, runtime], actions).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ShimError);
    expect(failure).toMatchObject({ reason: 'UNDO_FAILED' });
    expect((failure as Error).message).toContain('run of runtime failed');
    expect((failure as Error).message).toContain('undo of pod memory.max 200 -> 300 failed');
    expect(done.at(-1)).toBe('undo volume cache 200 -> 100');
  });

  test('after the runtime has answered, a step that fails is skipped and the rest goes on', async () => {
    const { actions, done } = recorder({ run: [lower] });
    const records = await runTransaction([runtime, lower, grow], actions);
    expect(records.map(({ step }) => step)).toEqual([runtime, grow]);
    expect(done).toEqual(['run runtime', 'skip pod memory.max 300 -> 250', 'run volume cache 100 -> 150']);
  });

  test('without a call to the runtime every step counts', async () => {
    const { actions, done } = recorder({ run: [lower] });
    await expect(runTransaction([raise, lower], actions)).rejects.toThrow('250 failed');
    expect(done.at(-1)).toBe('undo pod memory.max 200 -> 300');
  });
});

describe('the lock', () => {
  const gate = () => {
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    return { open, opened };
  };

  test('lets one in at a time for a key, in order, and other keys meanwhile', async () => {
    const lock = new KeyedLock();
    const { open, opened } = gate();
    const order: string[] = [];
    const first = lock.run('a', async () => {
      await opened;
      order.push('a1');
    });
    const second = lock.run('a', () => Promise.resolve(order.push('a2')));
    await lock.run('b', () => Promise.resolve(order.push('b1')));
    open();
    await Promise.all([first, second]);
    expect(order).toEqual(['b1', 'a1', 'a2']);
  });

  test('goes on after one that failed', async () => {
    const lock = new KeyedLock();
    const failing = lock.run('a', () => Promise.reject(new Error('no')));
    const next = lock.run('a', () => Promise.resolve('yes'));
    await expect(failing).rejects.toThrow('no');
    await expect(next).resolves.toBe('yes');
  });
});
