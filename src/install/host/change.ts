import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../core/errors/index.ts';

/** One reversible change of a node. */
export interface Change {
  /** What the change does, in the imperative: `write /etc/…`. */
  readonly says: string;
  do(): Promise<void>;
  /** Reverts what `do` has changed so far. Also called after a failed `do`, but not without `do`. */
  undo(): Promise<void>;
  /** Removes what was kept for `undo`. Called once all changes are done. */
  forget?(): Promise<void>;
}

export type Ended = 'done' | 'undone' | 'undo failed';

const LONG_MS = 1000;

/**
 * Applies changes in order. If one fails, it and all changes before it are rolled back in reverse. If a change cannot be rolled
 * back, the ones before it stay in place, because it may depend on them (a kubelet that still uses the shim, for example).
 * Reports the result of each change. Never rejects.
 * @param report receives one line per result
 * @param signal aborts on an interrupt: then everything is rolled back
 */
export async function carryOut(
  changes: readonly Change[],
  report: (line: string) => void,
  signal: AbortSignal,
): Promise<Ended> {
  for (const [index, change] of changes.entries()) {
    if (signal.aborted) {
      report(`not started: ${change.says}: ${messageOf(signal.reason)}`);
      return undo(changes.slice(0, index), report);
    }
    try {
      await announced(change.says, report, () => change.do());
      report(`done: ${change.says}`);
    } catch (error) {
      report(`failed: ${change.says}: ${messageOf(error)}`);
      return undo(changes.slice(0, index + 1), report);
    }
  }
  for (const change of changes) {
    try {
      await change.forget?.();
    } catch (error) {
      report(`not cleaned up after "${change.says}": ${messageOf(error)}`);
    }
  }
  return 'done';
}

async function undo(begun: readonly Change[], report: (line: string) => void): Promise<Ended> {
  for (const [index, change] of [...begun.entries()].toReversed()) {
    try {
      await announced(`roll back: ${change.says}`, report, () => change.undo());
      report(`rolled back: ${change.says}`);
    } catch (error) {
      report(`NOT rolled back: ${change.says}: ${messageOf(error)}`);
      for (const { says } of begun.slice(0, index).toReversed()) report(`left in place: ${says}`);
      return 'undo failed';
    }
  }
  return 'undone';
}

/** Reports a change that takes longer than a second while it runs. */
async function announced(says: string, report: (line: string) => void, work: () => Promise<void>): Promise<void> {
  const over = new AbortController();
  const reported = delay(LONG_MS, undefined, { signal: over.signal }).then(
    () => report(`${says} ...`),
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
 * @param settle runs after the changes, and again after their rollback (`systemctl daemon-reload`, for example)
 */
export function together(says: string, members: readonly Change[], settle: () => Promise<void>): Change {
  const begun: Change[] = [];
  return {
    says,
    async do() {
      for (const change of members) {
        begun.push(change);
        await change.do();
      }
      await settle();
    },
    async undo() {
      const reverts = begun.splice(0).map((change) => () => change.undo());
      const errors: unknown[] = [];
      for (const revert of [...reverts.toReversed(), settle])
        await revert().catch((error: unknown) => errors.push(error));
      if (errors.length > 0) throw new Error(errors.map(messageOf).join('; '));
    },
    async forget() {
      for (const change of members) await change.forget?.();
    },
  };
}
