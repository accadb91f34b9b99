import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { type ContainerdRelease, type Runtime, runInNode } from './node/index.ts';

/** Runs of vitest on this machine or in a test node, and how many of their tests have passed. */

export interface Outcome {
  readonly what: string;
  readonly passed: number;
  readonly failed: number;
}

/** What vitest's JSON reporter writes, as far as it is counted. */
interface VitestResults {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numFailedTestSuites: number;
  readonly numPendingTests: number;
  readonly success: boolean;
}

export const vitest = join('node_modules', '.bin', 'vitest');

export const flags = (project: string, results: string): string[] => [
  'run',
  '--project',
  project,
  '--reporter=default',
  '--reporter=json',
  `--outputFile.json=${results}`,
];

export interface NodeRun {
  readonly what: string;
  readonly project: string;
  readonly containerd: ContainerdRelease;
  readonly runtime: Runtime;
  readonly outDir: string;
  /** Files of tests that are left to other nodes. */
  readonly exclude?: readonly string[];
  /** What the tests are told. */
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

/** Runs a project's tests in a node. Output is shown when it is done, since two run side by side. */
export async function testsInNode(run: NodeRun): Promise<Outcome> {
  const { what, project, containerd, runtime, outDir, env = {}, exclude = [], timeoutMs, say, signal } = run;
  const vitestFlags = [...flags(project, '$NODE_OUT/results.json'), ...exclude.map((file) => `--exclude=${file}`)];
  say(`${what} ...`);
  const output: Buffer[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      output.push(chunk);
      done();
    },
  });
  try {
    await runInNode({
      containerd,
      runtime,
      env,
      command: ['sh', '-c', `exec ${vitest} ${vitestFlags.join(' ')}`],
      stdio: { stdout: sink, stderr: sink },
      progress: say,
      timeoutMs,
      outDir,
      signal,
    });
  } catch (error) {
    say(`${what}: ${error instanceof Error ? error.message : String(error)}`);
  }
  process.stdout.write(Buffer.concat(output));
  return count(what, join(outDir, 'results.json'));
}

/** A run that leaves no results, or none but failing to begin, counts as one failure. */
export async function count(what: string, file: string): Promise<Outcome> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) return { what, passed: 0, failed: 1 };
  const results = JSON.parse(text) as VitestResults;
  const { numPassedTests: passed, numFailedTests, numPendingTests: skipped } = results;
  // A file that cannot be loaded has no tests that could fail, and a skipped test proves nothing.
  const failed = Math.max(numFailedTests + skipped, results.success && passed > 0 ? 0 : 1);
  return { what, passed, failed };
}

/** Two at a time: as many as the smallest machine has processors. */
export async function inPairs<Item, Result>(
  items: readonly Item[],
  run: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const queue = items.values();
  const worker = async (): Promise<void> => {
    for (const item of queue) results.push(await run(item));
  };
  await Promise.all([worker(), worker()]);
  return results;
}

/** Says how each run ended, and all together in a last line "<name>: N passed, N failed". Gives the exit code. */
export function report(name: string, outcomes: readonly Outcome[], say: (text: string) => void): number {
  for (const { what, passed, failed } of outcomes) say(`${what}: ${passed} passed, ${failed} failed`);
  const sum = (key: 'passed' | 'failed'): number => outcomes.reduce((all, outcome) => all + outcome[key], 0);
  process.stdout.write(`${name}: ${sum('passed')} passed, ${sum('failed')} failed\n`);
  return sum('failed') === 0 ? 0 : 1;
}

/** Aborted by the first signal that ends this process. */
export function endingSignal(): AbortSignal {
  const ending = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => ending.abort());
  return ending.signal;
}

/** Says what goes on, with the time since the command began, on standard error. */
export function progressOf(name: string): (text: string) => void {
  const started = Date.now();
  return (text) =>
    void process.stderr.write(`${name}: ${((Date.now() - started) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
}
