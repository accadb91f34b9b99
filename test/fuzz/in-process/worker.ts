import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { parentPort } from 'node:worker_threads';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Target } from '../target.ts';
import { type InProcessName, inProcess } from './targets.ts';

/** The input of the worker thread. */
export interface Job {
  readonly target: InProcessName;
  readonly seed: number;
  readonly from: number;
  readonly to: number;
  /** The index of the current input. The main thread detects a hang by it. */
  readonly progress: Int32Array;
}

export type Report =
  | { readonly kind: 'progress'; readonly inputs: number; readonly heapMiB: number }
  | { readonly kind: 'finding'; readonly index: number; readonly message: string }
  | { readonly kind: 'done'; readonly inputs: number; readonly summary: string; readonly growthMiB: number };

/** The number of inputs between two measurements of memory. The first one comes after the warm-up. */
const MEASURE_INTERVAL = 10_000;
/** Limit of live memory above the first measurement, after garbage collection. Detects a few bytes per input. */
const GROWTH_LIMIT_MIB = 8;

/** Plays the inputs of a job in a worker thread, and reports to the main thread. */
export async function work({ target: name, seed, from, to, progress }: Job): Promise<void> {
  const report = (message: Report): void => parentPort?.postMessage(message);
  const target = inProcess[name].open();
  try {
    report(await playAll(target, { seed, from, to, progress }, report));
  } finally {
    target.close();
  }
}

async function playAll(
  target: Target,
  { seed, from, to, progress }: Omit<Job, 'target'>,
  report: (message: Report) => void,
): Promise<Report> {
  const live = liveMiB();
  let first: number | undefined;
  let growthMiB = 0;
  for (let index = from; index < to; index += 1) {
    Atomics.store(progress, 0, index);
    try {
      const played = target.play(seed, index);
      if (played instanceof Promise) await played;
    } catch (error) {
      const { message, stack = '' } = causeOf(error);
      return { kind: 'finding', index, message: `${error instanceof Error ? error.message : message}\n${stack}` };
    }
    const inputs = index + 1 - from;
    if (inputs % MEASURE_INTERVAL !== 0) continue;
    const heapMiB = await live();
    first ??= heapMiB;
    growthMiB = heapMiB - first;
    report({ kind: 'progress', inputs, heapMiB });
    if (growthMiB > GROWTH_LIMIT_MIB)
      return { kind: 'finding', index, message: `${growthMiB.toFixed(1)} MiB more live memory than at first` };
  }
  return { kind: 'done', inputs: to - from, summary: target.summary(), growthMiB };
}

/** Returns the cause of an error, whose stack trace is the relevant one. */
const causeOf = (error: unknown): Error =>
  error instanceof Error ? (error.cause instanceof Error ? error.cause : error) : new Error(String(error));

/** Returns a function that returns the live memory after garbage collection. */
function liveMiB(): () => Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  return async () => {
    // Twice, with a turn of the event loop between them, because finalizers and timers release memory in turns.
    for (let turn = 0; turn < 2; turn += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      collect();
    }
    const { heapUsed, external } = process.memoryUsage();
    return (heapUsed + external) / MiB;
  };
}
