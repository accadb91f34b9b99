import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join, resolve } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { Command } from 'commander';
import { execa } from 'execa';
import { cacheRoot, packageRoot } from '../../tools/download/places.ts';
import { countsIn, withTable } from '../runner/results-reporter.ts';
import { SelectionError } from '../runner/selection.ts';
import { endingSignal, progressOf } from '../runner/vitest-run.ts';
import { goToolchain } from '../support/node/parts/go-module.ts';
import { runBounded } from './bounded.ts';
import type { Stage, Suite } from './stages.ts';
import {
  commandOf,
  isOnRequest,
  isSuite,
  minutesOf,
  nightlyTable,
  quickStages,
  stages,
  stagesOf,
  suites,
} from './stages.ts';
import { type StageResult, State } from './state.ts';

/**
 * npm run nightly: all suites that npm test does not run, one stage after the other. It can be stopped and continued:
 * what has passed at the same commit does not run again. Ends with a table and a line of how many tests passed and
 * failed.
 */

interface Flags {
  readonly state: string;
  readonly only?: readonly string[];
  readonly quick?: true;
  readonly write?: true;
}

const say = progressOf('nightly');
const PAGE = join(packageRoot(), 'docs/compatibility.md');
/** The exit code of timeout(1). */
const LATE = 124;

const program = new Command('nightly')
  .description(
    'Runs all suites that npm test does not run, which takes many hours. A run that was stopped continues: what has passed at ' +
      'the same commit does not run again. Each stage has a time limit and a log.',
  )
  .argument('[flag...]', 'after --only NAME --: runs that suite alone with these flags, and its output on the terminal')
  .option('--state <folder>', 'results and logs', join(cacheRoot(), 'nightly'))
  .option('--only <name...>', `only these stages or suites; suites: ${Object.keys(suites).join(', ')}`)
  .option('--quick', 'only the stages that fit into an hour')
  .option('--write', 'write the table into docs/compatibility.md')
  .parse();

/** Returns the commit, marked if files differ from it. With the mark, earlier results do not count. */
async function commitOf(): Promise<string> {
  const git = async (...args: readonly string[]): Promise<string> =>
    (await execa('git', args, { cwd: packageRoot() })).stdout;
  // A changed page of an earlier run does not change the tested code.
  const changes = await git('status', '--porcelain', '--', '.', ':!docs/compatibility.md');
  const commit = await git('rev-parse', '--short=12', 'HEAD');
  return changes === '' ? commit : `${commit} with changes at ${new Date().toISOString()}`;
}

async function runStage(
  { name, suite, flags, minutes }: Stage,
  folder: string,
  signal: AbortSignal,
): Promise<StageResult> {
  const started = performance.now();
  const log = join(folder, `${name}.log`);
  say(`${name}: at most ${minutes} min, log in ${log}`);
  const output = openSync(log, 'w');
  const bounds = { cwd: packageRoot(), output, limitMs: minutes * 60_000, signal };
  const { exitCode, isLate } = await runBounded(commandOf(suite, flags), bounds).finally(() => closeSync(output));
  const text = stripVTControlCharacters(readFileSync(log, 'utf8'));
  const versions = [...text.matchAll(/^tested with: (.*)$/gm)].at(-1)?.[1];
  return {
    ...countsIn(text, exitCode),
    seconds: Math.round((performance.now() - started) / 1000),
    date: new Date().toISOString().slice(0, 10),
    ...(isLate && { isLate }),
    ...(versions !== undefined && { versions }),
  };
}

/** Runs one suite with other flags than its stages have. Returns its exit code. */
async function runSuite(suite: Suite, flags: readonly string[]): Promise<number> {
  const minutes = minutesOf(suite);
  const bounds = { cwd: packageRoot(), output: 'inherit', limitMs: minutes * 60_000, signal: endingSignal() } as const;
  const { exitCode, isLate } = await runBounded(commandOf(suite, flags), bounds);
  if (isLate) say(`${suite}: ended after its limit of ${minutes} min`);
  return isLate ? LATE : (exitCode ?? 1);
}

/**
 * Exit codes: 0 all tests that ran passed; 1 some failed, or a stage of --only needs Go; 2 invalid arguments; 130 ended
 * by a signal; if a suite runs with other flags: its exit code, or 124 at its time limit.
 */
async function main(flags: readonly string[], { state: folder, only, quick, write }: Flags): Promise<number> {
  const [suite] = only ?? [];
  const isAlone = only?.length === 1 && isSuite(suite);
  if (only !== undefined && quick) throw new SelectionError('--only or --quick, not both');
  if (isAlone && (flags.length > 0 || isOnRequest(suite))) {
    if (write) throw new SelectionError('--write needs the results of stages: leave out the flags after --');
    return runSuite(suite, flags);
  }
  if (flags.length > 0)
    throw new SelectionError(`flags after -- need --only with one suite: ${Object.keys(suites).join(', ')}`);
  const chosen = only === undefined ? (quick === true ? quickStages : stages) : stagesOf(only);
  const signal = endingSignal();
  mkdirSync(folder, { recursive: true });
  const state = State.read(resolve(folder, 'results.json'), await commitOf());
  const hasGo = (await goToolchain()) !== undefined;
  for (const stage of chosen) {
    const { name, needsGo } = stage;
    if (state.hasPassed(name)) say(`${name}: has passed at this commit`);
    else if (needsGo && !hasGo) say(`${name}: left out, this machine has no Go toolchain`);
    else {
      const result = await runStage(stage, folder, signal);
      // A run that was stopped has no result.
      if (signal.aborted) return 128 + constants.signals.SIGINT;
      state.add(name, result);
      const late = result.isLate === true ? ', ended by its time limit' : '';
      say(`${name}: ${result.passed} passed, ${result.failed} failed in ${result.seconds} s${late}`);
    }
  }
  process.stdout.write(`\n${nightlyTable(chosen, state.results, hasGo)}\n\n`);
  if (write)
    writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), 'nightly', nightlyTable(stages, state.results, hasGo)));
  const results = chosen.flatMap(({ name }) => state.results[name] ?? []);
  const sum = (key: 'passed' | 'failed'): number => results.reduce((all, result) => all + result[key], 0);
  process.stdout.write(`nightly: ${sum('passed')} passed, ${sum('failed')} failed\n`);
  const isLeftOut = only !== undefined && chosen.some(({ name }) => state.results[name] === undefined);
  return sum('failed') === 0 && !isLeftOut ? 0 : 1;
}

try {
  process.exitCode = await main(program.args, program.opts<Flags>());
} catch (error) {
  if (!(error instanceof SelectionError)) throw error;
  process.stderr.write(`nightly: ${error.message}\n`);
  process.exitCode = 2;
}
