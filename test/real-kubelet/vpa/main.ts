import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { packageRoot } from '../../../tools/download/places.ts';
import { withTable } from '../../runner/results-reporter.ts';
import { endingSignal, progressOf, report } from '../../runner/vitest-run.ts';
import { type ContainerdRelease, containerdReleases, NodeError } from '../../support/node/index.ts';
import { kubeletVersion, obtainKubernetes, obtainVpa, usualKubernetes, vpaVersion } from '../programs.ts';
import { outcomesOf, runSides } from './host.ts';
import { tableText } from './result.ts';
import { scenarios } from './scenarios.ts';

/**
 * The suite `vpa`: the updater of the Vertical Pod Autoscaler resizes pods of a real kubelet, in test nodes. Prints a
 * table, and fails when a scenario misses its bar through the shim. The last line of output has the numbers of passed
 * and failed scenarios.
 */

const say = progressOf('vpa');
const names = scenarios.map(({ name }) => name);

interface Flags {
  readonly containerd: ContainerdRelease;
  readonly runs: number;
  readonly interval?: readonly number[];
  readonly only: readonly string[];
  readonly logs?: string;
  readonly write?: true;
}

const count = (text: string): number => {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('expected a number from 1 to 9999');
  return Number(text);
};

const flags = new Command('vpa')
  .description(
    "Lets the Vertical Pod Autoscaler's updater lower the memory of pods, directly and through the shim, in test nodes.",
  )
  .addOption(new Option('--containerd <release>', 'containerd release').choices(containerdReleases).default('2.1'))
  .option('--runs <n>', 'runs of each scenario', count, 1)
  .option(
    '--interval <seconds...>',
    "intervals of the updater's rounds (default: 60 10)",
    (text: string, earlier: number[] | undefined) => [...(earlier ?? []), count(text)],
  )
  .addOption(
    new Option('--only <scenario...>', scenarios.map(({ name, title }) => `${name}: ${title}`).join('; '))
      .choices(names)
      .default(names, 'all'),
  )
  .option('--logs <folder>', 'where the logs and results of the nodes are left')
  .option('--write', 'replace the table in docs/vpa.md')
  .parse()
  .opts<Flags>();

async function main(): Promise<number> {
  const signal = endingSignal();
  const temporary = await mkdtemp(join(tmpdir(), 'cri-resize-shim-vpa-'));
  const folder = flags.logs === undefined ? temporary : resolve(flags.logs);
  const { containerd, runs, interval: intervals = [60, 10] } = flags;
  const only = scenarios.filter(({ name }) => flags.only.includes(name));
  try {
    const kubernetes = await obtainKubernetes(usualKubernetes, say);
    const vpa = await obtainVpa(say);
    const env = { KUBERNETES_PROGRAMS: join(kubernetes.folder, 'bin'), VPA_PROGRAMS: vpa.folder };
    const results = await runSides({ containerd, env, folder, runs, intervals, only, say, signal });
    const table = tableText(results, intervals);
    process.stdout.write(`\n${table}\n`);
    if (flags.write === true) await writeTable(table, containerd);
    return report('vpa', outcomesOf(results, { only, intervals }), say);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    say(error.message);
    return 70;
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

async function writeTable(table: string, containerd: string): Promise<void> {
  const page = join(packageRoot(), 'docs/vpa.md');
  const day = new Date().toISOString().slice(0, 10);
  const what = `VPA ${vpaVersion}, kubelet ${kubeletVersion(usualKubernetes)}, containerd ${containerd}, ${day}:`;
  await writeFile(page, withTable(await readFile(page, 'utf8'), 'vpa', `${what}\n\n${table}`));
}

process.exitCode = await main();
