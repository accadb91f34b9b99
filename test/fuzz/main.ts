import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { Command } from 'commander';
import type { Tally } from './engine.ts';
import { emptyTally, inputOf, play } from './engine.ts';

/**
 * npm run fuzz: plays mutated conversations through the proxy. Exits with 0 if there is no crash, no hang and no growth of memory,
 * otherwise with 1 and the command that repeats the input.
 */

interface Job {
  readonly seed: number;
  readonly runs: number;
  readonly only: number | undefined;
  /** The index of the current input. The main thread detects a hang by it. */
  readonly progress: Int32Array;
}

type Report =
  | { readonly kind: 'tally'; readonly tally: Tally; readonly heapMiB: number }
  | { readonly kind: 'finding'; readonly index: number; readonly message: string; readonly stack: string }
  | { readonly kind: 'done'; readonly growthMiB: number };

const MiB = 1024 * 1024;
/** The number of inputs between two measurements of memory. The first one comes after the warm-up. */
const MEASURE_INTERVAL = 20_000;
/** Limit of live memory above the first measurement, after garbage collection. It detects a leak of a few bytes per input. */
const GROWTH_LIMIT = 8 * MiB;
const HANG_SECONDS = 20;

async function work({ seed, runs, only, progress }: Job): Promise<void> {
  const report = (message: Report): void => parentPort?.postMessage(message);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const live = async (): Promise<number> => {
    // Twice, with a turn of the event loop between them, because finalizers and timers release memory in turns.
    for (let turn = 0; turn < 2; turn += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      collect();
    }
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const tally = emptyTally();
  let first: number | undefined;
  let growth = 0;
  const from = only ?? 0;
  const to = only === undefined ? runs : only + 1;
  for (let index = from; index < to; index += 1) {
    Atomics.store(progress, 0, index);
    try {
      await play(seed, index, tally);
    } catch (error) {
      const { message, stack = '' } = error as Error;
      report({ kind: 'finding', index, message, stack });
      return;
    }
    if ((index + 1) % MEASURE_INTERVAL !== 0) continue;
    const now = await live();
    first ??= now;
    growth = now - first;
    report({ kind: 'tally', tally, heapMiB: now / MiB });
    if (growth > GROWTH_LIMIT) {
      report({
        kind: 'finding',
        index,
        message: `${(growth / MiB).toFixed(1)} MiB more live memory than at first`,
        stack: '',
      });
      return;
    }
  }
  report({ kind: 'tally', tally, heapMiB: (await live()) / MiB });
  report({ kind: 'done', growthMiB: growth / MiB });
}

function main(): void {
  const values = new Command('fuzz')
    .description('Play mutated HTTP/2 conversations through the proxy and look for crashes, hangs and memory growth.')
    .option('--runs <count>', 'number of inputs (default: 1000000)')
    .option('--seed <number>', 'seed of the inputs (default: a new one for each run)')
    .option('--only <index>', 'play only this input, to repeat a finding')
    .parse()
    .opts<{ readonly runs?: string; readonly seed?: string; readonly only?: string }>();
  const runs = number(values.runs, 1_000_000);
  const seed = number(values.seed, Date.now() % 2 ** 31);
  const only = values.only === undefined ? undefined : number(values.only, 0);
  const progress = new Int32Array(new SharedArrayBuffer(4));
  console.log(`fuzz: ${only === undefined ? `${runs} inputs` : `input ${only}`}, seed ${seed}`);
  const started = Date.now();
  const worker = new Worker(new URL(import.meta.url), { workerData: { seed, runs, only, progress } satisfies Job });
  const fail = (index: number, message: string): void => {
    console.error(`fuzz: FAILED at input ${index}: ${message}`);
    for (const { side, bytes } of inputOf(seed, index).steps) console.error(`  ${side} ${bytes.toString('hex')}`);
    console.error(`fuzz: repeat with: npm run fuzz -- --seed ${seed} --only ${index}`);
    process.exit(1);
  };
  let last = -1;
  let still = 0;
  setInterval(() => {
    const index = Atomics.load(progress, 0);
    still = index === last ? still + 1 : 0;
    last = index;
    if (still >= HANG_SECONDS) fail(index, `no progress for ${HANG_SECONDS} s`);
  }, 1000);
  let printed = 0;
  worker.on('message', (report: Report) => {
    if (report.kind === 'finding') fail(report.index, `${report.message}\n${report.stack}`);
    if (report.kind === 'tally' && (Date.now() - printed > 5000 || report.tally.inputs === runs)) {
      printed = Date.now();
      const { inputs, survived, clientErrors, backendErrors, localErrors, amended } = report.tally;
      const seconds = (Date.now() - started) / 1000;
      console.log(
        `fuzz: ${inputs} inputs in ${seconds.toFixed(0)} s; ${survived} connections survived, errors: ${clientErrors} client, ` +
          `${backendErrors} backend, ${localErrors} local; ${amended} amendments; ${report.heapMiB.toFixed(1)} MiB live`,
      );
    }
    if (report.kind === 'done') {
      console.log(`fuzz: no crash, no hang, ${report.growthMiB.toFixed(1)} MiB more live memory than at first`);
      process.exit(0);
    }
  });
  worker.on('error', (error: Error) => fail(Atomics.load(progress, 0), String(error.stack)));
}

function number(text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise;
  if (!/^\d+$/.test(text)) {
    console.error(`fuzz: not a number: ${text}`);
    process.exit(2);
  }
  return Number(text);
}

if (isMainThread) main();
else await work(workerData as Job);
