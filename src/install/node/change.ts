import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../core/errors/index.ts';

/** One change of a node that can be taken back. */
export interface Change {
  /** What it does, in the words of a command: `write /etc/…`. */
  readonly says: string;
  do(): Promise<void>;
  /** Puts back what `do` has changed so far: it is called too when `do` has failed on its way, and not when `do` was not called. */
  undo(): Promise<void>;
  /** Once everything is done: what was kept for `undo` alone goes. */
  forget?(): Promise<void>;
}

export type Ended = 'done' | 'undone' | 'undo failed';

const LONG_MS = 1000;

/**
 * Carries changes out in their order. At the first that fails, it and all before it are undone in reverse, up to one that cannot be:
 * what came before that stays, since it may build upon it (a kubelet that still goes to the shim, say). Tells of each what has become
 * of it. Never rejects.
 * @param signal aborted when a person wants it to end: then all is undone
 */
export async function carryOut(
  changes: readonly Change[],
  tell: (line: string) => void,
  signal: AbortSignal,
): Promise<Ended> {
  for (const [index, change] of changes.entries()) {
    if (signal.aborted) {
      tell(`not begun: ${change.says}: ${messageOf(signal.reason)}`);
      return undo(changes.slice(0, index), tell);
    }
    try {
      await announced(change.says, tell, () => change.do());
      tell(`done: ${change.says}`);
    } catch (error) {
      tell(`failed: ${change.says}: ${messageOf(error)}`);
      return undo(changes.slice(0, index + 1), tell);
    }
  }
  for (const change of changes) {
    try {
      await change.forget?.();
    } catch (error) {
      tell(`left behind: of "${change.says}": ${messageOf(error)}`);
    }
  }
  return 'done';
}

async function undo(begun: readonly Change[], tell: (line: string) => void): Promise<Ended> {
  for (const [index, change] of [...begun.entries()].toReversed()) {
    try {
      await announced(`undo: ${change.says}`, tell, () => change.undo());
      tell(`undone: ${change.says}`);
    } catch (error) {
      tell(`NOT undone: ${change.says}: ${messageOf(error)}`);
      for (const { says } of begun.slice(0, index).toReversed()) tell(`stays: ${says}`);
      return 'undo failed';
    }
  }
  return 'undone';
}

/** Says what is being done when it takes a person's notice. */
async function announced(says: string, tell: (line: string) => void, work: () => Promise<void>): Promise<void> {
  const over = new AbortController();
  const said = delay(LONG_MS, undefined, { signal: over.signal }).then(
    () => tell(`${says} ...`),
    () => undefined,
  );
  try {
    await work();
  } finally {
    over.abort();
    await said;
  }
}

/**
 * Several changes as one. @param settle follows when they are done, and again when they are undone: what has to be told of them.
 */
export function together(says: string, parts: readonly Change[], settle: () => Promise<void>): Change {
  const begun: Change[] = [];
  return {
    says,
    async do() {
      for (const part of parts) {
        begun.push(part);
        await part.do();
      }
      await settle();
    },
    async undo() {
      const backs = begun.splice(0).map((part) => () => part.undo());
      const faults: unknown[] = [];
      for (const back of [...backs.toReversed(), settle]) await back().catch((error: unknown) => faults.push(error));
      if (faults.length > 0) throw new Error(faults.map(messageOf).join('; '));
    },
    async forget() {
      for (const part of parts) await part.forget?.();
    },
  };
}
