import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { endingSignal, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import { prepareNode } from '../support/node/index.ts';
import { type ChaosFigures, figuresText } from './figures.ts';

interface Flags {
  readonly rounds: number;
  readonly seed: number;
  readonly title: string;
}

/** containerd 2.1 reads the configuration of 1.7, but 1.7 does not read that of 2.1. */
const RELEASE = '1.7';
const OTHER_RELEASE = '2.1';
/** Maximum time of a round: usually about ten seconds, and a minute if the node does not settle. */
const ROUND_MS = 60_000;
const START_MS = 5 * 60_000;
const say = progressOf('chaos');

const positive = (text: string): number => {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('expected a number from 1 to 999999999');
  return Number(text);
};

const program = new Command('chaos')
  .description(
    'Brings faults of disk, process, clock and runtime about while clients resize pods through the shim, in a test node, and ' +
      'checks after each round that the node is whole again. Ends with the numbers of passed and failed rounds, and the seed.',
  )
  .option('--rounds <number>', 'number of rounds', positive, 200)
  .option('--seed <number>', 'repeats the faults of a run', positive, 1 + (Date.now() % 999_999))
  .option('--title <text>', 'only faults with this text in their name', '')
  .parse();

/** Exit codes: 0 all passed, 1 some failed, 130 ended by a signal. */
async function main({ rounds, seed, title }: Flags): Promise<number> {
  const signal = endingSignal();
  const outDir = await mkdtemp(join(tmpdir(), 'cri-resize-shim-chaos-'));
  try {
    const other = await prepareNode({ containerd: OTHER_RELEASE, runtime: 'runc' }, say);
    const env = {
      CHAOS_ROUNDS: String(rounds),
      CHAOS_SEED: String(seed),
      CHAOS_TITLE: title,
      CHAOS_OTHER_CONTAINERD: other.programs[0] ?? '',
    };
    const what = `${rounds} rounds, containerd ${RELEASE} and ${OTHER_RELEASE}, seed ${seed}`;
    const timeoutMs = START_MS + rounds * ROUND_MS;
    const node = { containerd: RELEASE, runtime: 'runc', project: 'chaos' } as const;
    const outcome = await testsInNode({ ...node, what, outDir, env, timeoutMs, say, signal });
    // A run that ended before its first round leaves no figures.
    const figures = await readFile(join(outDir, 'chaos.json'), 'utf8').catch(() => undefined);
    if (figures !== undefined) process.stdout.write(`chaos: ${figuresText(JSON.parse(figures) as ChaosFigures)}\n`);
    process.stdout.write(`chaos: seed ${seed}\n`);
    return signal.aborted ? 128 + constants.signals.SIGINT : report('chaos', [outcome], say);
  } finally {
    await rm(outDir, { recursive: true, force: true });
  }
}

process.exitCode = await main(program.opts<Flags>());
