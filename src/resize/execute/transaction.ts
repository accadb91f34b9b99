import { Code, Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import { type Step, type StepRecord, describeStep } from '../model/index.ts';

/** How the steps of a plan are carried out and taken back. */
export interface StepActions {
  /** Carries a step out and checks that it holds. Rejects when it does not. */
  apply(step: Step): Promise<void>;
  /** Takes back a step that was carried out, or a part of it, as far as the pod's present state allows. */
  rollBack(step: Step): Promise<void>;
  /** A step has been carried out. */
  applied?(record: StepRecord): void;
  /** What was done is about to be taken back. */
  rollingBack?(): Promise<void>;
  /** A step after the runtime's call failed: what the caller asked for is done, so the call does not fail for it. */
  skipped(step: Step, error: unknown): void;
}

/**
 * Carries out a plan. The first failing step up to the caller's own call stops the rest; what it and those before it did is
 * then undone in reverse, and the step's error is thrown on as it is. Throws UNDO_FAILED, with both errors, when undoing fails too. The
 * steps after that call (a lowering that keeps a pod limit tight, a volume that may grow) are skipped when they fail:
 * unlike a resize without such a call, which is done whole or not at all, what was asked for is done.
 */
export async function runTransaction(steps: readonly Step[], actions: StepActions): Promise<StepRecord[]> {
  const start = performance.now();
  const records: StepRecord[] = [];
  for (const step of steps) {
    const at = performance.now() - start;
    try {
      await actions.apply(step);
    } catch (error) {
      if (records.some((applied) => applied.step.kind === 'runtime')) {
        actions.skipped(step, error);
        continue;
      }
      await actions.rollingBack?.();
      // The failing step itself too: it may have done a part.
      await rollBackAll([...records.map((applied) => applied.step), step], actions, error);
      throw error;
    }
    const record = { step, at, ms: performance.now() - start - at };
    records.push(record);
    actions.applied?.(record);
  }
  return records;
}

async function rollBackAll(steps: readonly Step[], actions: StepActions, cause: unknown): Promise<void> {
  const failures: string[] = [];
  for (const step of [...steps].reverse()) {
    try {
      await actions.rollBack(step);
    } catch (error) {
      // The rest is still undone: each step taken back brings the pod nearer to where it was.
      failures.push(`${describeStep(step)}: ${messageOf(error)}`);
    }
  }
  if (failures.length > 0) {
    throw new ShimError(
      Code.INTERNAL,
      Reason.UNDO_FAILED,
      `${messageOf(cause)}; rollback failed too: ${failures.join('; ')}`,
      {},
      { cause },
    );
  }
}
