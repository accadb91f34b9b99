import { parseDuration } from '../../config/index.ts';
import {
  type ChangesResult,
  type Plan,
  Refusal,
  applyChanges,
  probeChanges,
  takeInstallLock,
} from '../../install/node/index.ts';
import { Exit } from '../command-table/index.ts';
import { BusyError, UsageError } from '../output/index.ts';
import { sayingWaits } from '../waiting.ts';
import type { Context, InstallOptions } from './context.ts';

const exits: Readonly<Record<ChangesResult, Exit>> = {
  done: Exit.done,
  undone: Exit.infeasible,
  overtaken: Exit.busy,
  'undo failed': Exit.undoFailed,
};

const DEFAULT_TIMEOUT_MS = 60_000;

/** Returns the value of --timeout in milliseconds. Throws UsageError. */
export function timeoutOf(timeout: string | undefined): number {
  const timeoutMs = timeout === undefined ? DEFAULT_TIMEOUT_MS : parseDuration(timeout);
  if (timeoutMs !== undefined && timeoutMs > 0) return timeoutMs;
  throw new UsageError(`--timeout: invalid duration ${JSON.stringify(timeout)}: expected a duration such as 30s or 2m`);
}

/**
 * Takes the lock of the installation. Returns its release. Throws BusyError. Only root can change anything, which a
 * plan or a check says.
 */
export async function locked(isDryRun: boolean, take = takeInstallLock): Promise<() => Promise<void>> {
  if (isDryRun || process.geteuid?.() !== 0) return () => Promise.resolve();
  const lock = await take();
  if (lock.kind === 'held') return () => lock.release();
  const pid = lock.pid === undefined ? '' : ` (pid ${lock.pid})`;
  throw new BusyError(
    `nothing was changed: another installation runs${pid}; what to do: wait until it has ended, and try again`,
  );
}

/**
 * Makes the changes of a plan while no other process does, or prints them. An interrupt rolls them back. Returns the exit code.
 * @param planOf throws Refusal; its signal aborts on an interrupt
 */
export async function changing(
  { print, say }: Pick<Context, 'print' | 'say'>,
  { dryRun }: Pick<InstallOptions, 'dryRun'>,
  planOf: (signal: AbortSignal) => Promise<Plan>,
): Promise<Exit> {
  const ending = new AbortController();
  const end = (signal: NodeJS.Signals): void => ending.abort(new Error(`interrupted by ${signal}`));
  // A closed pipe (`| head`) must not end the process half way.
  process.stdout.removeAllListeners('error').on('error', () => undefined);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, end);
  let unlock: (() => Promise<void>) | undefined;
  try {
    unlock = await locked(dryRun === true);
    const printLine = (line: string): void => print(`${line}\n`);
    const { changes, already, versions } = await sayingWaits('the state of this node', planOf(ending.signal), say);
    if (versions !== undefined) printLine(`${dryRun === true ? 'would ' : ''}${versions}`);
    for (const line of already) printLine(`already: ${line}`);
    if (dryRun === true) {
      for (const { description } of changes) printLine(`would: ${description}`);
    }
    const problems = await probeChanges(changes);
    if (problems.length > 0)
      throw new UsageError(`nothing was changed, because this is not possible: ${problems.join('; ')}`);
    if (dryRun === true) return Exit.done;
    return exits[await applyChanges(changes, printLine, ending.signal)];
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new UsageError(`nothing was changed: ${error.message}; what to do: ${error.remedy}`, { cause: error });
  } finally {
    await unlock?.();
    for (const signal of signals) process.off(signal, end);
  }
}
