import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { execa } from 'execa';
import { type ContainerdRelease, containerdReleases, runInNode } from './node/index.ts';

/**
 * npm test: unit and property tests on this machine, then the end-to-end tests inside a test node of each containerd. Ends
 * with a line of how many tests have passed and failed. Arguments: `--containerd <release>` (again and again) for some only.
 */

interface Outcome {
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

const started = Date.now();
const say = (text: string): void =>
  void process.stderr.write(`test: ${((Date.now() - started) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);

const vitest = join('node_modules', '.bin', 'vitest');
const flags = (project: string, results: string): string[] => [
  'run',
  '--project',
  project,
  '--reporter=default',
  '--reporter=json',
  `--outputFile.json=${results}`,
];

async function unitTests(folder: string): Promise<Outcome> {
  say('unit and property tests ...');
  const results = join(folder, 'unit.json');
  await execa(vitest, flags('unit', results), { stdio: ['ignore', 'inherit', 'inherit'], reject: false });
  return count('unit', results);
}

/** Output is shown when a node is done, since two run side by side. */
async function endToEndTests(containerd: ContainerdRelease, folder: string, signal: AbortSignal): Promise<Outcome> {
  const what = `end to end, containerd ${containerd}`;
  say(`${what} ...`);
  const output: Buffer[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      output.push(chunk);
      done();
    },
  });
  const outDir = join(folder, containerd);
  try {
    await runInNode({
      containerd,
      runtime: 'runc',
      command: ['sh', '-c', `exec ${vitest} ${flags('e2e', '$NODE_OUT/results.json').join(' ')}`],
      stdio: { stdout: sink, stderr: sink },
      progress: say,
      timeoutMs: 12 * 60_000,
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
async function count(what: string, file: string): Promise<Outcome> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) return { what, passed: 0, failed: 1 };
  const results = JSON.parse(text) as VitestResults;
  const { numPassedTests: passed, numFailedTests, numPendingTests: skipped } = results;
  // A file that cannot be loaded has no tests that could fail, and a skipped test proves nothing.
  const failed = Math.max(numFailedTests + skipped, results.success && passed > 0 ? 0 : 1);
  return { what, passed, failed };
}

/** Two at a time: as many as the smallest machine has processors. */
async function inPairs<Item, Result>(items: readonly Item[], run: (item: Item) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = [];
  const queue = items.values();
  const worker = async (): Promise<void> => {
    for (const item of queue) results.push(await run(item));
  };
  await Promise.all([worker(), worker()]);
  return results;
}

async function main(): Promise<number> {
  const asked = process.argv.flatMap((argument, at, all) => (argument === '--containerd' ? [all[at + 1]] : []));
  const releases = containerdReleases.filter((release) => asked.length === 0 || asked.includes(release));
  const ending = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => ending.abort());
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    const unit = await unitTests(folder);
    const endToEnd = await inPairs(releases, (release) => endToEndTests(release, folder, ending.signal));
    const outcomes = [unit, ...endToEnd];
    for (const { what, passed, failed } of outcomes) say(`${what}: ${passed} passed, ${failed} failed`);
    const sum = (key: 'passed' | 'failed'): number => outcomes.reduce((all, outcome) => all + outcome[key], 0);
    process.stdout.write(`tests: ${sum('passed')} passed, ${sum('failed')} failed\n`);
    return sum('failed') === 0 ? 0 : 1;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
