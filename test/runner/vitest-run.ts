import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { type ContainerdRelease, type Init, type KernelName, type Runtime, runInNode } from '../support/node/index.ts';
import { LineFollower } from './line-follower.ts';
import type { Failure, Progress, Results } from './results-reporter.ts';
import { titlePattern } from './selection.ts';

/** Runs vitest on this machine or in a test node, and counts the tests that passed. */

export interface Outcome {
  readonly what: string;
  readonly passed: number;
  readonly failures: readonly Failure[];
  /** Flags with which `npm test -- FILE` boots the same node; undefined if npm test does not run the files. */
  readonly sameNode?: string;
}

export const vitest = join('node_modules', '.bin', 'vitest');

export const flags = (project: string, results: string): string[] => [
  'run',
  '--project',
  project,
  '--reporter=default',
  '--reporter=./test/runner/results-reporter.ts',
  `--outputFile.results=${results}`,
];

export interface NodeRun {
  readonly what: string;
  readonly project: string;
  readonly containerd: ContainerdRelease;
  readonly runtime: Runtime;
  /** Default: `plain`. */
  readonly init?: Init;
  /** Default: `uml`. */
  readonly kernel?: KernelName;
  readonly outDir: string;
  /** Test files. Default: all of the project. */
  readonly only?: readonly string[];
  /** Test files that run in other nodes. */
  readonly exclude?: readonly string[];
  /** Only tests with this text in their title. */
  readonly title?: string | undefined;
  /** Whether the tests call crictl. */
  readonly criTools?: boolean;
  /** Environment variables for the tests. */
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Runs a project's tests in a node. Prints each failure at once and each file when it has ended. Prints the output of
 * vitest at the end if a test has failed: at the end, because several nodes run concurrently.
 */
export async function testsInNode(run: NodeRun): Promise<Outcome> {
  const {
    what,
    project,
    containerd,
    runtime,
    init = 'plain',
    kernel = 'uml',
    outDir,
    env = {},
    only = [],
    exclude = [],
    title,
    criTools = false,
    timeoutMs,
    say,
    signal,
  } = run;
  const vitestFlags = [
    ...flags(project, '$NODE_OUT/results.json'),
    '--outputFile.progress=$NODE_OUT/progress',
    ...exclude.map((file) => `--exclude=${file}`),
  ];
  say(`${what} ...`);
  const output: Buffer[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      output.push(chunk);
      done();
    },
  });
  await mkdir(outDir, { recursive: true });
  const follower = new LineFollower(join(outDir, 'progress'), (line) => {
    say(`${what}: ${progressText(JSON.parse(line) as Progress)}`);
  });
  try {
    await runInNode({
      containerd,
      runtime,
      init,
      kernel,
      criTools,
      env,
      command: ['sh', '-c', `exec ${vitest} ${vitestFlags.join(' ')} "$@"`, 'sh', ...titleFlags(title), ...only],
      stdio: { stdout: sink, stderr: sink },
      progress: say,
      timeoutMs,
      outDir,
      signal,
    });
  } catch (error) {
    say(`${what}: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    follower.close();
  }
  const outcome = await count(what, join(outDir, 'results.json'));
  if (outcome.failures.length > 0) process.stdout.write(Buffer.concat(output));
  if (project !== 'e2e') return outcome;
  return { ...outcome, sameNode: `--containerd ${containerd} --runtime ${runtime} --init ${init} --kernel ${kernel}` };
}

/** Returns the flags for vitest that select tests by title. */
export const titleFlags = (title: string | undefined): string[] =>
  title === undefined ? [] : [`--testNamePattern=${titlePattern(title)}`];

/** Returns progress as a readable line. For a failure, it has the first line only: the final report has all. */
export function progressText(progress: Progress): string {
  if ('failure' in progress) {
    const { name, what } = progress.failure;
    return `FAILED ${name}: ${what.split('\n', 1).join()}`;
  }
  const { name, passed, failed, ended, files } = progress.file;
  const counts = failed === 0 ? `${passed} passed` : `${passed} passed, ${failed} failed`;
  return `${name}: ${counts} (${ended} of ${files} files)`;
}

/** A run that leaves no results counts as one failure. */
export async function count(what: string, file: string): Promise<Outcome> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) return { what, passed: 0, failures: [{ name: 'all', what: 'the run has left no results' }] };
  return { what, ...(JSON.parse(text) as Results) };
}

/** Runs a function for each item, at most `limit` concurrently, in their order. */
export async function concurrently<Item, Result>(
  limit: number,
  items: readonly Item[],
  run: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const queue = items.values();
  const worker = async (): Promise<void> => {
    for (const item of queue) results.push(await run(item));
  };
  await Promise.all(Array.from({ length: limit }, worker));
  return results;
}

/** Runs two items concurrently, which suits a machine with two processors. */
export const inPairs = <Item, Result>(
  items: readonly Item[],
  run: (item: Item) => Promise<Result>,
): Promise<Result[]> => concurrently(2, items, run);

/** Returns the command that repeats a failure's file alone; undefined without a file, or if npm test skips it. */
export function repeating(name: string, sameNode: string | undefined): string | undefined {
  const [file] = /^test\/[^: ]+\.test\.ts/.exec(name) ?? [];
  return file === undefined || sameNode === undefined ? undefined : `npm test -- ${[file, sameNode].join(' ').trim()}`;
}

/**
 * Prints the failures with the commands that repeat them, the outcome of each run, and the totals in a last line
 * "<name>: N passed, N failed". Returns the exit code. The failures come late, so that the end of a long output has
 * them. A run of no tests is a failure.
 */
export function report(name: string, outcomes: readonly Outcome[], say: (text: string) => void): number {
  const failed = outcomes.flatMap(({ failures, ...run }) => failures.map((failure) => ({ run, ...failure })));
  for (const { run, name: test, what } of failed) {
    const command = repeating(test, run.sameNode);
    const lines = [...what.split('\n'), ...(command === undefined ? [] : [`repeat it: ${command}`])];
    process.stdout.write(`FAILED ${run.what}: ${test}\n${lines.map((line) => `    ${line}\n`).join('')}`);
  }
  for (const { what, passed, failures } of outcomes) say(`${what}: ${passed} passed, ${failures.length} failed`);
  const passed = outcomes.reduce((all, outcome) => all + outcome.passed, 0);
  const isEmpty = passed === 0 && failed.length === 0;
  if (isEmpty) process.stdout.write('FAILED: no test has run: check --title and the files\n');
  process.stdout.write(`${name}: ${passed} passed, ${isEmpty ? 1 : failed.length} failed\n`);
  return failed.length === 0 && !isEmpty ? 0 : 1;
}

/** Returns a signal that the first SIGINT, SIGTERM or SIGHUP aborts. */
export function endingSignal(): AbortSignal {
  const ending = new AbortController();
  // Not `once`: while execa runs a program, it ends this process at a signal without other listeners, before the
  // command can clean up.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => ending.abort());
  return ending.signal;
}

/** Returns a function that prints progress on standard error, with the time since the start. */
export function progressOf(name: string): (text: string) => void {
  const started = Date.now();
  return (text) =>
    void process.stderr.write(`${name}: ${((Date.now() - started) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
}
