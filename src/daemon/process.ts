/** Stop signals and exit of the process, and its heap size. */
import { constants } from 'node:os';
import { setFlagsFromString } from 'node:v8';
import { releaseMemory } from '../core/index.ts';

/** How the process ends. */
export interface ProcessEnd {
  readonly exitCode: number;
  /** Ends the process in place of the exit code if a thread hangs. */
  readonly signal: NodeJS.Signals;
}

/** The end after a failure. SIGKILL writes no core. systemd counts it as a failure, like a nonzero exit code. */
export const failedWith = (exitCode: number): ProcessEnd => ({ exitCode, signal: 'SIGKILL' });

/** How long the end waits for threads that read or write, in milliseconds. */
const THREADS_MS = 3000;
/** Interval between checks for busy threads: Node has no event for a thread that becomes free. */
const POLL_MS = 10;

/** The work of threads of libuv's pool: file operations and name lookups. */
const THREAD_WORK = /^(?:FSReq|FileHandleCloseReq|GetAddrInfo|GetNameInfo)/;

/** Ends the process. Waits for threads that read or write, at most {@link THREADS_MS}. */
export async function endProcess(end: ProcessEnd): Promise<never> {
  for (let waited = 0; isThreadBusy() && waited < THREADS_MS; waited += POLL_MS)
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  return endProcessNow(end);
}

/**
 * Ends the process immediately. process.exit() waits for each thread of libuv's pool without limit. If a thread hangs,
 * for example in an fsync of a broken disk, the process would not exit and would keep the unit from serving. Only a
 * signal ends it.
 */
export function endProcessNow(end: ProcessEnd): never {
  if (isThreadBusy()) endBySignal(end);
  process.exit(end.exitCode);
}

/** Ends the process immediately by the signal, regardless of its threads. */
function endBySignal({ exitCode, signal }: ProcessEnd): never {
  // Without listeners, the signal has its default action.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Reached in process 1 of a container only: the kernel ignores signals that it sends to itself.
  process.exit(exitCode);
}

const isThreadBusy = (): boolean => process.getActiveResourcesInfo().some((name) => THREAD_WORK.test(name));

const signals = ['SIGTERM', 'SIGINT'] as const;
export type StopSignal = (typeof signals)[number];

/** Resolves with the first stop signal. A second one ends the process: a shell reports 128 plus its number. */
export function stopSignal(): Promise<StopSignal> {
  return new Promise((resolve) => {
    let stopping = false;
    for (const signal of signals) {
      process.on(signal, () => {
        if (stopping) endBySignal({ exitCode: 128 + constants.signals[signal], signal });
        stopping = true;
        resolve(signal);
      });
    }
  });
}

/**
 * Limits the heap of V8, because the shim runs on every node, and returns memory after a burst from now on. Objects of
 * a call are garbage once the call ends, so frequent collections are cheap. By default V8 lets the young generation
 * grow to 32 MB, and the rest by half before a collection.
 *
 * Call it after all modules are loaded. Node's built-in modules come with a code cache that V8 accepts only under the
 * flags that it was compiled with. With these flags set earlier, V8 compiles http2, tls and others again: 15 ms of
 * start time and 0.5 MB.
 */
export async function useLittleMemory(): Promise<void> {
  setFlagsFromString('--semi-space-growth-factor=1');
  setFlagsFromString('--heap-growing-percent=20');
  // For such a small young generation, waking parallel threads takes longer than the collection itself.
  setFlagsFromString('--no-parallel-scavenge');
  await releaseMemory();
}
