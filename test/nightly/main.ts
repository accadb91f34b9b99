import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join, resolve } from 'node:path';
import { finished } from 'node:stream/promises';
import { Command } from 'commander';
import { execa } from 'execa';
import { cacheRoot, packageRoot } from '../../tools/download/places.ts';
import { countsIn } from '../runner/counts.ts';
import { endingSignal, progressOf } from '../runner/vitest-run.ts';
import { goToolchain } from '../support/node/parts/go-module.ts';
import { State, type StepResult } from './state.ts';
import { type Step, steps } from './steps.ts';
import { withTable } from '../runner/page-table.ts';
import { nightlyTable } from './table.ts';

/**
 * npm run nightly: all commands that test the shim, one after the other. It can be stopped and continued: what has passed at the same
 * commit does not run again. Ends with a table and a line of how many tests passed and failed.
 */

interface Flags {
  readonly state: string;
  readonly only: string;
  readonly write?: true;
}

const say = progressOf('nightly');
const PAGE = join(packageRoot(), 'docs/compatibility.md');

const program = new Command('nightly')
  .description(
    'Runs all commands that test the shim, which takes many hours. A run that was stopped continues: what has passed at the same ' +
      'commit does not run again.',
  )
  .option('--state <folder>', 'results and logs', join(cacheRoot(), 'nightly'))
  .option('--only <text>', 'only commands with this text in their name', '')
  .option('--write', 'write the table into docs/compatibility.md')
  .parse();

/** The commit, with a mark if files differ from it: then nothing that ran before counts. */
async function commitOf(): Promise<string> {
  const git = async (...args: readonly string[]): Promise<string> =>
    (await execa('git', args, { cwd: packageRoot() })).stdout;
  // The page of an earlier run is no change of what is tested.
  const changes = await git('status', '--porcelain', '--', '.', ':!docs/compatibility.md');
  const commit = await git('rev-parse', '--short=12', 'HEAD');
  return changes === '' ? commit : `${commit} with changes at ${new Date().toISOString()}`;
}

async function runStep({ name, command }: Step, folder: string, signal: AbortSignal): Promise<StepResult> {
  const started = performance.now();
  const log = join(folder, `${name.replaceAll(/[^\w.]+/g, '-')}.log`);
  say(`${name}: npm ${command.join(' ')}, log in ${log}`);
  const file = createWriteStream(log);
  const child = execa('npm', command, {
    cwd: packageRoot(),
    stdin: 'ignore',
    all: true,
    buffer: false,
    cancelSignal: signal,
    // Nodes and their tests end when npm's children get the signal.
    forceKillAfterDelay: 30_000,
    reject: false,
  });
  child.all.pipe(file);
  const { exitCode } = await child;
  await finished(file);
  const output = readFileSync(log, 'utf8').replaceAll(/\u001b\[[0-9;]*m/g, '');
  const versions = [...output.matchAll(/^tested with: (.*)$/gm)].at(-1)?.[1];
  return {
    ...countsIn(output, exitCode),
    seconds: Math.round((performance.now() - started) / 1000),
    date: new Date().toISOString().slice(0, 10),
    ...(versions !== undefined && { versions }),
  };
}

/** Exit codes: 0 all that ran passed, 1 some failed, 130 ended by a signal. */
async function main({ state: folder, only, write }: Flags): Promise<number> {
  const signal = endingSignal();
  mkdirSync(folder, { recursive: true });
  const state = State.read(resolve(folder, 'results.json'), await commitOf());
  const hasGo = (await goToolchain()) !== undefined;
  const chosen = steps.filter(({ name }) => name.includes(only));
  for (const step of chosen) {
    if (state.hasPassed(step.name)) say(`${step.name}: has passed at this commit`);
    else if (step.needsGo && !hasGo) say(`${step.name}: left out, this machine has no Go toolchain`);
    else {
      const result = await runStep(step, folder, signal);
      // A run that was stopped says nothing about the tests.
      if (signal.aborted) return 128 + constants.signals.SIGINT;
      state.add(step.name, result);
      say(`${step.name}: ${result.passed} passed, ${result.failed} failed in ${result.seconds} s`);
    }
  }
  const table = nightlyTable(steps, state.results);
  process.stdout.write(`\n${table}\n\n`);
  if (write) writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), 'npm run nightly', table));
  const results = chosen.flatMap(({ name }) => state.results[name] ?? []);
  const sum = (key: 'passed' | 'failed'): number => results.reduce((all, result) => all + result[key], 0);
  process.stdout.write(`nightly: ${sum('passed')} passed, ${sum('failed')} failed\n`);
  return sum('failed') === 0 ? 0 : 1;
}

process.exitCode = await main(program.opts<Flags>());
