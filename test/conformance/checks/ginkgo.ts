import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { execa } from 'execa';

export interface GinkgoRun {
  /** The suite, for lines of progress. */
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
  /** Known once the suite has said it, with `-v` only. */
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
