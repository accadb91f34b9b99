import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { endingSignal, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import { figuresText, type SoakFigures } from './figures.ts';

interface Flags {
  readonly resizes: number;
  readonly pods?: number;
}

/** Each end has three windows, and a 99th percentile needs 100 resizes. */
const LEAST = 700;
/** A resize takes about a tenth of a second in the node, on a busy machine a second. */
const RESIZE_MS = 1000;
const START_MS = 5 * 60_000;
const say = progressOf('soak');

const atLeast =
  (least: number) =>
  (text: string): number => {
    if (!/^\d{1,9}$/.test(text) || Number(text) < least)
      throw new InvalidArgumentError(`expected a number of at least ${least}`);
    return Number(text);
  };

const program = new Command('soak')
  .description(
    'Resizes pods through every way in, in a test node, while pods are made and removed. Compares memory, descriptors and the ' +
      '99th percentile of the last resizes with those of the first ones.',
  )
  .option('--resizes <number>', 'number of resizes', atLeast(LEAST), 3500)
  .option('--pods <number>', 'number of pods that are replaced meanwhile (default: one for 100 resizes)', atLeast(0))
  .parse();

/** Exit codes: 0 all passed, 1 some failed, 130 ended by a signal. */
async function main({ resizes, pods = Math.floor(resizes / 100) }: Flags): Promise<number> {
  const signal = endingSignal();
  const outDir = await mkdtemp(join(tmpdir(), 'cri-resize-shim-soak-'));
  try {
    const env = { SOAK_RESIZES: String(resizes), SOAK_PODS: String(pods) };
    const what = `${resizes} resizes and ${pods} pods, containerd 2.1`;
    const timeoutMs = START_MS + resizes * RESIZE_MS;
    const node = { containerd: '2.1', runtime: 'runc', project: 'soak' } as const;
    const outcome = await testsInNode({ ...node, what, outDir, env, timeoutMs, say, signal });
    // A run that ended before its last windows leaves no figures.
    const figures = await readFile(join(outDir, 'soak.json'), 'utf8').catch(() => undefined);
    if (figures !== undefined) process.stdout.write(`soak: ${figuresText(JSON.parse(figures) as SoakFigures)}\n`);
    return signal.aborted ? 128 + constants.signals.SIGINT : report('soak', [outcome], say);
  } finally {
    await rm(outDir, { recursive: true, force: true });
  }
}

process.exitCode = await main(program.opts<Flags>());
