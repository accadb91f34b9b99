import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';

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
export const logName = 'critest.log';

/** Both sides run specs in the same order, so that leftovers of one spec meet the same next spec. */
const seed = 1;
const sayEveryMs = 20_000;

/** Runs critest to completion. Failed specs are in the report and are no error here. */
export async function runCritest(run: CritestRun): Promise<void> {
  const start = performance.now();
  const critest = execa(
    'critest',
    [
      ...['--runtime-endpoint', run.endpoint, '--image-endpoint', run.endpoint],
      ...['--ginkgo.v', '--ginkgo.no-color', `--ginkgo.seed=${seed}`, '--ginkgo.timeout=40m'],
      `--ginkgo.json-report=${join(run.outDir, reportName)}`,
      ...(run.focus === undefined ? [] : [`--ginkgo.focus=${run.focus}`]),
    ],
    { reject: false, all: true, buffer: false, stdin: 'ignore' },
  );
  const log: string[] = [];
  const counts = { done: 0, failed: 0, total: '?' };
  let said = start;
  for await (const line of critest.iterable({ from: 'all' })) {
    log.push(line);
    count(counts, line);
    if (performance.now() - said < sayEveryMs) continue;
    said = performance.now();
    run.say(`${counts.done} of ${counts.total} specs, ${counts.failed} failed, ${seconds(start)} s`);
  }
  const { exitCode, signal } = await critest;
  await writeFile(join(run.outDir, logName), log.join('\n'));
  run.say(
    `critest: ${counts.done} of ${counts.total} specs, ${counts.failed} failed, in ${seconds(start)} s` +
      (exitCode === undefined ? `, ended by ${String(signal)}` : ''),
  );
}

function count(counts: { done: number; failed: number; total: string }, line: string): void {
  const total = /^Will run (\d+) of \d+ specs$/.exec(line)?.[1];
  if (total !== undefined) counts.total = total;
  // The line that ends a spec: "• [1.234 seconds]", "• [FAILED] [1.234 seconds]".
  if (/^(•|S|P) (\[\w+\] )?\[\d+\.\d+ seconds\]/.test(line)) counts.done++;
  if (/^• \[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED)\]/.test(line)) counts.failed++;
}

function seconds(start: number): string {
  return ((performance.now() - start) / 1000).toFixed(0);
}
