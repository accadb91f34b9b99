import { Code, Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import { type Step, type StepRecord, describeStep } from '../model/index.ts';

/** A step that is not applied, because the pod's present state has no place for it. The others go on. */
export class StepSkipped extends Error {
  override readonly name = 'StepSkipped';
}

/** Applies and rolls back the steps of a plan. */
export interface StepActions {
  /** Applies a step and verifies it. Rejects when that fails, and with {@link StepSkipped} when nothing is changed on purpose. */
  apply(step: Step): Promise<void>;
  /** Rolls back a step that was applied, fully or partly, as far as the pod's present state allows. */
  rollBack(step: Step): Promise<void>;
  /** Called after a step is applied. */
  applied?(record: StepRecord): void;
  /** Called before the rollback begins. */
  rollingBack?(): Promise<void>;
  /** Called when a step is skipped, or fails after the caller's own call: the caller's change is applied, so the call succeeds. */
  skipped(step: Step, error: unknown): void;
}

/**
 * Runs a plan as a transaction. The first failing step stops it (KEP-1287: later containers are not touched). The failing step and
 * those before it are rolled back in reverse order, and the step's error is thrown unchanged. Throws UNDO_FAILED, with both errors,
 * when the rollback fails too.
 *
 * Steps after the caller's own call (a decrease that keeps a pod limit tight, a volume that may grow) are skipped when they fail:
 * the caller's change is applied. A plan without such a call is all or nothing.
 */
export async function runTransaction(steps: readonly Step[], actions: StepActions): Promise<StepRecord[]> {
  const start = performance.now();
  const records: StepRecord[] = [];
  for (const step of steps) {
    const at = performance.now() - start;
    try {
      await actions.apply(step);
    } catch (error) {
      if (error instanceof StepSkipped || records.some((applied) => applied.step.kind === 'runtime')) {
        actions.skipped(step, error);
        continue;
      }
      await actions.rollingBack?.();
      // Includes the failing step, which may be partly applied.
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
      // Continue: each step that is rolled back brings the pod closer to its state before.
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
