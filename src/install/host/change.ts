import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../core/index.ts';

/** One reversible change of a node. */
export interface Change {
  /** The change in the imperative: `write /etc/…`. */
  readonly description: string;
  do(): Promise<void>;
  /** Reverts what `do` has changed so far. Also called after a failed `do`, but not without `do`. */
  undo(): Promise<void>;
  /** Rejects if `do` could not write, as far as that can be seen without writing. */
  probe?(): Promise<void>;
  /** Removes what was kept for `undo`. Called once all changes are done. */
  forget?(): Promise<void>;
}

/** `overtaken`: rolled back because another process has changed a file meanwhile. */
export type ChangesResult = 'done' | 'undone' | 'overtaken' | 'undo failed';

/** Another process has changed a file since it was read. Another attempt may succeed. */
export class ChangedMeanwhile extends Error {
  override readonly name = 'ChangedMeanwhile';
}

const LONG_MS = 1000;

/**
 * Applies changes in order. If one fails, it and all changes before it are rolled back in reverse. If a change cannot
 * be rolled back, the ones before it stay in place, because it may depend on them (a kubelet that still uses the shim,
 * for example). Reports the result of each change. Never rejects.
 * @param report receives one line per result
 * @param signal aborts on an interrupt: then everything is rolled back
 */
export async function applyChanges(
  changes: readonly Change[],
  report: (line: string) => void,
  signal: AbortSignal,
): Promise<ChangesResult> {
  for (const [index, change] of changes.entries()) {
    if (signal.aborted) {
      report(`not started: ${change.description}: ${messageOf(signal.reason)}`);
      return undo(changes.slice(0, index), report);
    }
    try {
      await announced(change.description, report, () => change.do());
      report(`done: ${change.description}`);
    } catch (error) {
      report(`failed: ${change.description}: ${messageOf(error)}`);
      const result = await undo(changes.slice(0, index + 1), report);
      return result === 'undone' && error instanceof ChangedMeanwhile ? 'overtaken' : result;
    }
  }
  for (const change of changes) {
    try {
      await change.forget?.();
    } catch (error) {
      report(`not cleaned up after "${change.description}": ${messageOf(error)}`);
    }
  }
  return 'done';
}

/** Returns why changes cannot be made, as far as that can be seen without making them. */
export async function probeChanges(changes: readonly Change[]): Promise<readonly string[]> {
  const problems: string[] = [];
  for (const change of changes)
    await change.probe?.().catch((error: unknown) => problems.push(`${change.description}: ${messageOf(error)}`));
  return problems;
}

async function undo(begun: readonly Change[], report: (line: string) => void): Promise<ChangesResult> {
  for (const [index, change] of [...begun.entries()].toReversed()) {
    try {
      await announced(`roll back: ${change.description}`, report, () => change.undo());
      report(`rolled back: ${change.description}`);
    } catch (error) {
      report(`NOT rolled back: ${change.description}: ${messageOf(error)}`);
      for (const { description } of begun.slice(0, index).toReversed()) report(`left in place: ${description}`);
      return 'undo failed';
    }
  }
  return 'undone';
}

/** Reports a change that runs for longer than a second. */
async function announced(
  description: string,
  report: (line: string) => void,
  work: () => Promise<void>,
): Promise<void> {
  const over = new AbortController();
  const reported = delay(LONG_MS, undefined, { signal: over.signal }).then(
    () => report(`${description} ...`),
    () => undefined,
  );
  try {
    await work();
  } finally {
    over.abort();
    await reported;
  }
}

/**
 * Combines several changes into one.
 * @param finish runs after the changes, and again after their rollback (`systemctl daemon-reload`, for example)
 */
export function combineChanges(description: string, members: readonly Change[], finish: () => Promise<void>): Change {
  const begun: Change[] = [];
  return {
    description,
    async do() {
      for (const change of members) {
        begun.push(change);
        await change.do();
      }
      await finish();
    },
    async undo() {
      const reverts = begun.splice(0).map((change) => () => change.undo());
      const errors: unknown[] = [];
      for (const revert of [...reverts.toReversed(), finish])
        await revert().catch((error: unknown) => errors.push(error));
      if (errors.length > 0) throw new Error(errors.map(messageOf).join('; '));
    },
    async probe() {
      for (const change of members) await change.probe?.();
    },
    async forget() {
      for (const change of members) await change.forget?.();
    },
  };
}
