import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Command, Option } from 'commander';
import { packageRoot } from '../../tools/download/places.ts';
import { prepareHelm, prepareKubectl } from '../deploy/manifests.ts';
import { withTable } from '../runner/results-reporter.ts';
import {
  endingSignal,
  inPairs,
  type NodeRun,
  type Outcome,
  progressOf,
  report,
  testsInNode,
} from '../runner/vitest-run.ts';
import {
  type ContainerdRelease,
  containerdReleases,
  type KernelName,
  kernels,
  NodeError,
  prepareNode,
} from '../support/node/index.ts';
import {
  type KubernetesRelease,
  kubeletVersion,
  kubernetesReleases,
  obtainKubeadm,
  obtainKubernetes,
  usualKubernetes,
} from './programs.ts';
import { compareSides, compareVerdicts, compareVolumes, type TableRun } from './table/host.ts';

/**
 * The suite `kubelet`: a real kubelet with a real API server resizes pods in test nodes. The last line of output has
 * the numbers of passed and failed tests.
 */

const say = progressOf('kubelet');
const parts = ['table', 'admission', 'kep-6030', 'pods', 'installer', 'bypass', 'operator'] as const;
type Part = (typeof parts)[number];

interface Flags {
  readonly kubelet: readonly KubernetesRelease[];
  readonly containerd: readonly ContainerdRelease[];
  readonly only: readonly Part[];
  readonly kernel: KernelName;
  readonly title: string;
  readonly write: boolean;
  readonly logs?: string;
}

const flags = new Command('kubelet')
  .description('Resizes pods with a real kubelet and API server, directly and through the shim, in test nodes.')
  .addOption(
    new Option('--kubelet <release...>', 'releases of kubelet and API server, one or more')
      .choices(kubernetesReleases)
      .default([usualKubernetes]),
  )
  .addOption(
    new Option('--containerd <release...>', 'containerd releases, one or more')
      .choices(containerdReleases)
      .default(['2.1']),
  )
  .addOption(
    new Option(
      '--only <part...>',
      'table: pods resized directly and through the shim, compared; admission: small resizes requested of kubelet and of ResizePod, compared; kep-6030: volumes resized by kubelet 1.37 with its feature gate and by the shim, compared; pods: one pod through the shim, with its volume, and the endpoint that kubelet merges; ' +
        'installer: the DaemonSet under systemd, and upgrades of the node by kubeadm; bypass: the shim fails under systemd, and its package is removed; operator: what an operator does with a node, which has to be Ready at every moment',
    )
      .choices(parts)
      .default(parts.filter((part) => part !== 'kep-6030')),
  )
  .addOption(
    new Option('--kernel <name>', "of the table, the rows for User Mode Linux or those that need Debian's kernel")
      .choices(kernels)
      .default('uml'),
  )
  .option('--title <text>', 'of the tables, only rows with this text in "configuration: title"', '')
  .option('--write', 'write the table of kep-6030 into docs/volumes.md if all rows pass', false)
  .option('--logs <folder>', 'where the logs and observations of the nodes are left')
  .parse()
  .opts<Flags>();

interface Run {
  readonly kubernetes: KubernetesRelease;
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** Runs one release of containerd after the other, because the table has two nodes at a time. */
async function tables({ kubernetes, folder, env, signal }: Run): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const containerd of flags.containerd) {
    const { kernel, title } = flags;
    const timeoutMs = (kernel === 'uml' ? 40 : 60) * 60_000;
    for (const [part, compare] of [
      ['table', compareSides],
      ['admission', compareVerdicts],
    ] as const) {
      const own = { kubernetes, containerd, env, folder: join(folder, `${part}-${containerd}`), title };
      if (flags.only.includes(part)) outcomes.push(...(await compare({ ...own, kernel, timeoutMs, say, signal })));
    }
  }
  return outcomes;
}

/** Compares resizes of volumes by kubelet itself with those by the shim. Writes the table into docs/volumes.md. */
async function volumes(root: string, signal: AbortSignal): Promise<Outcome[]> {
  const { kernel, title } = flags;
  if (!flags.only.includes('kep-6030') || kernel !== 'uml') return [];
  const runOf = async (kubernetes: KubernetesRelease): Promise<TableRun> => {
    const env = { KUBERNETES_PROGRAMS: join((await obtainKubernetes(kubernetes, say)).folder, 'bin') };
    const folder = join(root, `kep-6030-${kubernetes}`);
    const containerd = flags.containerd[0] ?? '2.1';
    return { kubernetes, containerd, env, folder, kernel, title, timeoutMs: 60 * 60_000, say, signal };
  };
  const gated = await runOf('1.37');
  const ungated = { ...gated, folder: join(root, 'kep-6030-1.37-ungated') };
  const { outcomes, text } = await compareVolumes({ gated, others: [ungated, await runOf('1.36')] });
  process.stdout.write(`\n${text}\n\n`);
  const hasPassed = outcomes.every(({ failures }) => failures.length === 0);
  if (flags.write && title === '' && hasPassed) await writeTable(text);
  return outcomes;
}

async function writeTable(text: string): Promise<void> {
  const page = join(packageRoot(), 'docs/volumes.md');
  await writeFile(page, withTable(await readFile(page, 'utf8'), 'kep-6030', text));
}

function others({ kubernetes, folder, env, signal }: Run): Promise<Outcome[]> {
  const kubelet = `kubelet ${kubeletVersion(kubernetes)}`;
  const node = { project: 'kubelet', runtime: 'runc', env, timeoutMs: 60 * 60_000, say, signal } as const;
  const pods = flags.containerd.map((containerd) => ({
    ...node,
    what: `${kubelet}, containerd ${containerd}`,
    containerd,
    outDir: join(folder, containerd),
    only: ['test/real-kubelet/endpoint.test.ts', 'test/real-kubelet/kubelet.test.ts'],
  }));
  const installer = {
    ...node,
    what: `${kubelet} under systemd, and the installer`,
    containerd: '2.1',
    init: 'systemd',
    outDir: join(folder, 'systemd'),
    timeoutMs: 60 * 60_000,
    only: ['test/real-kubelet/installer.test.ts', 'test/real-kubelet/kubeadm.test.ts'],
  } as const;
  const bypass = {
    ...installer,
    what: `${kubelet} under systemd, and the bypass`,
    outDir: join(folder, 'bypass'),
    only: ['test/real-kubelet/bypass.test.ts', 'test/real-kubelet/package.test.ts'],
  } as const;
  const operator = {
    ...installer,
    what: `${kubelet} under systemd, and an operator`,
    outDir: join(folder, 'operator'),
    only: ['test/real-kubelet/operator.test.ts'],
    criTools: true,
  } as const;
  const runs: readonly NodeRun[] = [
    ...(flags.only.includes('operator') ? [operator] : []),
    ...(flags.only.includes('bypass') ? [bypass] : []),
    ...(flags.only.includes('installer') ? [installer] : []),
    ...(flags.only.includes('pods') ? pods : []),
  ];
  return inPairs(runs, testsInNode);
}

/** Runs all tests of one kubelet release. */
async function withKubelet(kubernetes: KubernetesRelease, root: string, signal: AbortSignal): Promise<Outcome[]> {
  const programs = await obtainKubernetes(kubernetes, say);
  const env = { KUBERNETES_PROGRAMS: join(programs.folder, 'bin') };
  const run = { kubernetes, folder: join(root, kubernetes), env, signal };
  const compared = await tables(run);
  if (flags.only.every((part) => part === 'table' || part === 'admission' || part === 'kep-6030')) return compared;
  const kubectl = await prepareKubectl(say);
  const kubeadm = await obtainKubeadm(kubernetes, say);
  // Go is available, because Kubernetes was built with it.
  const helm = (await prepareHelm(say)) ?? 'helm';
  const programsOfAll = { ...env, HELM: helm, KUBECTL: kubectl, KUBEADM: join(kubeadm.folder, 'bin/kubeadm') };
  return [...compared, ...(await others({ ...run, env: programsOfAll }))];
}

async function main(): Promise<number> {
  const signal = endingSignal();
  const temporary = await mkdtemp(join(tmpdir(), 'cri-resize-shim-kubelet-'));
  const folder = flags.logs === undefined ? temporary : resolve(flags.logs);
  try {
    const outcomes: Outcome[] = [];
    // One after the other, because the table has two nodes at a time.
    outcomes.push(...(await volumes(folder, signal)));
    for (const kubernetes of flags.kubelet) outcomes.push(...(await withKubelet(kubernetes, folder, signal)));
    const kubelets = flags.kubelet.map((release) => kubeletVersion(release).slice(1)).join(', ');
    const runtimes = await Promise.all(
      flags.containerd.map((containerd) => prepareNode({ containerd, runtime: 'runc' })),
    );
    const versions = runtimes.map(({ containerdVersion }) => containerdVersion).join(', ');
    process.stdout.write(`tested with: kubelet ${kubelets}, containerd ${versions}\n`);
    return report('kubelet', outcomes, say);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    say(error.message);
    return 70;
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

process.exitCode = await main();
