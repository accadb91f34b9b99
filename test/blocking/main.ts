import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { constants, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { packageRoot } from '../../tools/download/places.ts';
import { withTable } from '../runner/results-reporter.ts';
import { endingSignal, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import { type Measured, tableText } from './figures.ts';

interface Flags {
  readonly resizes: number;
  readonly write?: true;
}

const RELEASE = '2.1';
const START_MS = 5 * 60_000;
/** A resize takes about a tenth of a second in the node, on a busy machine a second. */
const RESIZE_MS = 2000;
const PAGE = join(packageRoot(), 'docs/limits.md');
const say = progressOf('blocking');

const positive = (text: string): number => {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('expected a number from 1 to 999999999');
  return Number(text);
};

const program = new Command('blocking')
  .description(
    'Resizes pods through every way in, in a test node, while kubelet changes its files and metrics are read. Measures each ' +
      "synchronous call of the shim, during its start and after it. Fails if docs/limits.md does not name a call's subject, or if " +
      'the 99.9th percentile of all calls after the start is 10 ms or more.',
  )
  .option('--resizes <number>', 'number of resizes', positive, 1000)
  .option('--write', 'replace the tables in docs/limits.md')
  .parse();

function tablesText({ start, service }: Measured, resizes: number): string {
  const day = new Date().toISOString().slice(0, 10);
  return [
    `${resizes} resizes, containerd ${RELEASE}, on a machine with ${cpus().length} processors, ${day}:`,
    tableText(service),
    'The start of the same process, during which it serves no call:',
    tableText(start),
  ].join('\n\n');
}

/** Exit codes: 0 all passed, 1 some failed, 130 ended by a signal. */
async function main({ resizes, write }: Flags): Promise<number> {
  const signal = endingSignal();
  const outDir = await mkdtemp(join(tmpdir(), 'cri-resize-shim-blocking-'));
  try {
    const env = { BLOCKING_RESIZES: String(resizes) };
    const what = `${resizes} resizes, containerd ${RELEASE}`;
    const timeoutMs = START_MS + resizes * RESIZE_MS;
    const node = { containerd: RELEASE, runtime: 'runc', project: 'blocking' } as const;
    const outcome = await testsInNode({ ...node, what, outDir, env, timeoutMs, say, signal });
    // A run that was stopped has no measurements.
    const file = await readFile(join(outDir, 'blocking.json'), 'utf8').catch(() => undefined);
    if (file !== undefined) {
      const text = tablesText(JSON.parse(file) as Measured, resizes);
      process.stdout.write(`\n${text}\n\n`);
      if (write) await writeFile(PAGE, withTable(await readFile(PAGE, 'utf8'), 'blocking', text));
    }
    return signal.aborted ? 128 + constants.signals.SIGINT : report('blocking', [outcome], say);
  } finally {
    await rm(outDir, { recursive: true, force: true });
  }
}

process.exitCode = await main(program.opts<Flags>());
