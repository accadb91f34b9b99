import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { stringify } from 'yaml';
import { runGinkgo } from './ginkgo.ts';

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

/** Both sides run specs in the same order, so that leftovers of one spec meet the same next spec. */
const seed = 1;

/** Runs critest to completion. Failed specs are in the report and are no error here. */
export function runCritest({ focus, ...run }: CritestRun): Promise<void> {
  const focusing = focus === undefined ? [] : [`--ginkgo.focus=${focus}`];
  return critest('critest', reportName, run, ['--ginkgo.v', ...focusing]);
}

/**
 * Parameters of the benchmarks. critest leaves out those without a number. How long a call may take is not compared:
 * the nodes share a machine. `npm run bench` measures times.
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

/** Runs critest's benchmarks, which a run of its other specs leaves out: they do the same calls many times at once. */
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
