import { once } from 'node:events';
import { createWriteStream, existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { execa } from 'execa';
import { stringify } from 'yaml';

export interface GinkgoRun {
  /** The name of the suite, for lines of progress. */
  readonly what: string;
  readonly file: string;
  /** With `-v`, ginkgo prints a line for each spec, and there is progress. */
  readonly args: readonly string[];
  /** The file for its output. */
  readonly log: string;
  /** Receives lines of progress. */
  readonly say: (line: string) => void;
}

const sayEveryMs = 20_000;

/** Runs a suite of ginkgo to completion. Failed specs are in its report and are no error here. */
export async function runGinkgo({ what, file, args, log, say }: GinkgoRun): Promise<void> {
  const start = performance.now();
  const suite = execa(file, args, { reject: false, all: true, buffer: false, stdin: 'ignore' });
  const output = createWriteStream(log);
  const counts: Counts = { done: 0, failed: 0, total: undefined };
  let said = start;
  for await (const line of suite.iterable({ from: 'all' })) {
    if (!output.write(`${line}\n`)) await once(output, 'drain');
    count(counts, line);
    if (counts.total === undefined || performance.now() - said < sayEveryMs) continue;
    said = performance.now();
    say(`${textOf(counts)}, ${seconds(start)} s`);
  }
  const { exitCode, signal } = await suite;
  output.end();
  await once(output, 'close');
  const end = exitCode === undefined ? `ended by ${String(signal)}` : `exited with ${exitCode}`;
  say(`${what}: ${counts.total === undefined ? end : textOf(counts)}, in ${seconds(start)} s`);
}

interface Counts {
  done: number;
  failed: number;
  /** Known once the suite has printed it, which it does only with `-v`. */
  total: string | undefined;
}

const textOf = ({ done, failed, total = '?' }: Counts): string => `${done} of ${total} specs, ${failed} failed`;

function count(counts: Counts, line: string): void {
  const total = /^Will run (\d+) of \d+ specs$/.exec(line)?.[1];
  if (total !== undefined) counts.total = total;
  // The line that ends a spec: "• [1.234 seconds]", "• [FAILED] [1.234 seconds]".
  if (/^(•|S|P) (\[\w+\] )?\[\d+\.\d+ seconds\]/.test(line)) counts.done++;
  if (/^• \[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED)\]/.test(line)) counts.failed++;
}

function seconds(start: number): string {
  return ((performance.now() - start) / 1000).toFixed(0);
}

export interface CritestRun {
  readonly endpoint: string;
  /** Ginkgo's regular expression for full names of specs; undefined selects all. */
  readonly focus: string | undefined;
  /** The folder for the report and the log. */
  readonly outDir: string;
  /** Receives lines of progress. */
  readonly say: (line: string) => void;
}

export const reportName = 'report.json';
export const benchmarkReportName = 'benchmarks.json';

/** Both sides run the specs in the same order, so that leftovers of a spec affect the same spec on both sides. */
const seed = 1;

/** Runs critest to completion. Failed specs are in the report and are no error here. */
export function runCritest({ focus, ...run }: CritestRun): Promise<void> {
  const focusing = focus === undefined ? [] : [`--ginkgo.focus=${focus}`];
  return critest('critest', reportName, run, ['--ginkgo.v', ...focusing]);
}

/**
 * Parameters of the benchmarks. critest omits those without a number. Durations are not compared, because the nodes
 * share a machine: `npm run bench` measures times.
 */
const parameters = {
  containersNumber: 5,
  containersNumberParallel: 2,
  podsNumber: 5,
  podsNumberParallel: 2,
  imagesNumber: 3,
  imagesNumberParallel: 2,
  containerBenchmarkTimeoutSeconds: 300,
  podBenchmarkTimeoutSeconds: 300,
  imageBenchmarkTimeoutSeconds: 300,
  podContainerStartBenchmarkTimeoutSeconds: 60,
};

/** Runs critest's benchmarks, which are not part of its other specs. They make the same calls concurrently. */
export async function runBenchmarks(run: Omit<CritestRun, 'focus'>): Promise<void> {
  const file = join(run.outDir, 'benchmarks.yaml');
  await writeFile(file, stringify(parameters));
  const flags = ['--benchmark', `--benchmarking-params-file=${file}`, `--benchmarking-output-dir=${run.outDir}`];
  await critest('critest --benchmark', benchmarkReportName, run, flags);
}

async function critest(
  what: string,
  report: string,
  { endpoint, outDir, say }: Omit<CritestRun, 'focus'>,
  flags: readonly string[],
): Promise<void> {
  const log = join(outDir, `${what.replaceAll(/[^\w]+/g, '-')}.log`);
  await runGinkgo({
    what,
    file: 'critest',
    args: [
      ...['--runtime-endpoint', endpoint, '--image-endpoint', endpoint],
      ...['--ginkgo.no-color', `--ginkgo.seed=${seed}`, '--ginkgo.timeout=40m'],
      `--ginkgo.json-report=${join(outDir, report)}`,
      ...flags,
    ],
    log,
    say,
  });
  if (!existsSync(join(outDir, report))) throw new Error(`${what} has left no report, see ${basename(log)}`);
}
