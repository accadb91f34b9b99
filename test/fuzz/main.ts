import { fileURLToPath } from 'node:url';
import { isMainThread, workerData } from 'node:worker_threads';
import { Command, InvalidArgumentError } from 'commander';
import { runInProcess } from './in-process/run.ts';
import { type InProcessName, inProcess, inProcessNames } from './in-process/targets.ts';
import { type Job, work } from './in-process/worker.ts';
import { runProgram } from './program/run.ts';
import type { Outcome } from './target.ts';

/**
 * The suite `fuzz`: feeds the whole program, the proxy and all parsers with mutated input. Exits with 0 if there is no
 * crash, no hang and no growth of memory, otherwise with 1 and the command that repeats the input.
 */

const PROGRAM = 'program';
/** The percentage of all inputs that the whole program receives. */
const PROGRAM_SHARE = 50;
/** This program is in dist/tools. */
const shipped = fileURLToPath(new URL('../cri-resize-shim.js', import.meta.url));
const names = [PROGRAM, ...inProcessNames];

interface Flags {
  readonly inputs: number;
  readonly seed: number;
  readonly only?: number;
  readonly target: readonly string[];
}

const say = (text: string): void => console.log(`fuzz: ${text}`);

async function main({ inputs, seed, only, target }: Flags): Promise<number> {
  say(`${only === undefined ? `${inputs} inputs` : `input ${only}`}, seed ${seed}`);
  const shares = inProcessNames.filter((name) => target.includes(name));
  const isWhole = target.includes(PROGRAM);
  const all = shares.reduce((sum, name) => sum + inProcess[name].share, isWhole ? PROGRAM_SHARE : 0);
  const inThisProcess = async (): Promise<Outcome[]> => {
    const outcomes: Outcome[] = [];
    for (const name of shares) outcomes.push(await runOne(name, (inputs * inProcess[name].share) / all));
    return outcomes;
  };
  const runOne = (name: InProcessName, count: number): Promise<Outcome> => {
    const [from, to] = only === undefined ? [0, Math.ceil(count)] : [only, only + 1];
    return runInProcess(new URL(import.meta.url), { target: name, seed, from, to }, say);
  };
  const whole = async (): Promise<Outcome[]> => {
    if (!isWhole) return [];
    return [await runProgram({ seed, only, inputs: (inputs * PROGRAM_SHARE) / all, program: shipped }, say)];
  };
  // Runs both at the same time: the program leaves half of two processors to the other targets.
  const outcomes = await Promise.all([whole(), inThisProcess()]);
  return report(outcomes.flat(), seed);
}

/** Prints how the targets ended. Returns the exit code. */
function report(outcomes: readonly Outcome[], seed: number): number {
  for (const { target, summary, failure } of outcomes) {
    if (failure === undefined) {
      say(`${target}: ${summary}`);
      continue;
    }
    for (const line of failure.lines) console.error(`fuzz: ${line}`);
    console.error(
      `fuzz: repeat with: npm run nightly -- --only fuzz -- --target ${target} --seed ${seed} --only ${failure.index}`,
    );
  }
  const failed = outcomes.filter(({ failure }) => failure !== undefined).length;
  const inputs = outcomes.reduce((sum, outcome) => sum + outcome.inputs, 0);
  say(`${inputs} inputs; no crash, no hang and no growth of memory in ${outcomes.length - failed} targets`);
  say(`${outcomes.length - failed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

function count(text: string): number {
  if (!/^\d{1,10}$/.test(text)) throw new InvalidArgumentError('expected a number.');
  return Number(text);
}

function targets(text: string, before: readonly string[] | undefined): readonly string[] {
  if (!names.includes(text)) throw new InvalidArgumentError(`expected one of ${names.join(', ')}.`);
  return before === names ? [text] : [...(before ?? []), text];
}

if (isMainThread) {
  const command = new Command('fuzz')
    .description(
      'Feed the program, the proxy and the parsers with mutated input, and look for crashes, hangs and memory growth.',
    )
    .option('--inputs <count>', 'number of inputs of all targets together', count, 1_000_000)
    .option('--seed <number>', 'seed of the inputs (default: a new one for each run)', count)
    .option('--only <index>', 'play only this input, to repeat a finding; needs --seed and --target', count)
    .option('--target <name...>', `only these targets: ${names.join(', ')}`, targets, names)
    .parse();
  process.exitCode = await main({ seed: Date.now() % 2 ** 31, ...command.opts<Omit<Flags, 'seed'>>() });
} else await work(workerData as Job);
