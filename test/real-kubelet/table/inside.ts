import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { manifestsOf } from '../../deploy/manifests.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { Cluster, NODE, slowness } from '../cluster.ts';
import type { KubernetesRelease } from '../programs.ts';
import { configurationsOf, gatesOf, type Table } from './configurations.ts';
import { ApiWatch } from './observe.ts';
import { manifestOf, OVERHEAD, OVERHEAD_CLASS, type Pod, type PodSpec } from './pod.ts';
import { Registry } from './registry.ts';
import type { Configuration, Observation, Row, Side } from './row.ts';
import { EVENTS, type KubernetesEvent, PODS, RESIZE_SOCKET, runRow, type Stage } from './run-row.ts';

/**
 * Runs in the test node as `kubelet-inside SIDE KUBERNETES TABLE [TITLE]`. Runs the rows of one side, one configuration
 * after the other. Writes the observations to $NODE_OUT/observations.json and progress to $NODE_OUT/progress.
 */

const [side, kubernetes, table, title = ''] = process.argv.slice(2) as [Side, KubernetesRelease, Table, string?];
const out = process.env['NODE_OUT'] ?? '/tmp';
const STATE = '/var/lib/cri-resize-shim';
/** Rows at the same time. The node has one processor, so more rows are not faster. */
const AT_ONCE = 8;
const FILLER = 'filler';

const started = Date.now();
const say = (text: string): void =>
  appendFileSync(join(out, 'progress'), `${((Date.now() - started) / 1000).toFixed(0)} s: ${text}\n`);

/** By configuration and title. A row that failed to run has the error as its only field. */
const observations: Record<string, Record<string, Observation>> = {};

async function main(): Promise<void> {
  const cluster = await Cluster.start('/run/kubernetes', { featureGates: gatesOf(table) });
  try {
    for (const manifest of manifestsOf(readFileSync('deploy/rbac.yaml', 'utf8'))) await cluster.apply(manifest);
    await cluster.api.create('/apis/node.k8s.io/v1/runtimeclasses', {
      metadata: { name: OVERHEAD_CLASS },
      handler: 'runc',
      overhead: { podFixed: OVERHEAD },
    });
    say('the API server is ready');
    const kernel = process.env['NODE_KERNEL'] === 'debian' ? 'debian' : 'uml';
    for (const configuration of configurationsOf(kubernetes, kernel, table)) {
      const rows = configuration.rows.filter((row) => `${configuration.name}: ${row.title}`.includes(title));
      if (rows.length > 0) await runConfiguration(cluster, configuration, rows);
    }
  } finally {
    await cluster.stop();
  }
}

async function runConfiguration(cluster: Cluster, configuration: Configuration, rows: readonly Row[]): Promise<void> {
  const { name, kubelet, swap, usesApi } = configuration;
  if (swap) addSwap();
  const hasVolumeGate = table === 'volumes with gate';
  const shims = side === 'shim' ? [await startShim(cluster, usesApi)] : [];
  const registry = await Registry.start();
  const pods = new ApiWatch<Pod>(cluster.api, PODS);
  const events = new ApiWatch<KubernetesEvent>(cluster.api, EVENTS);
  try {
    const startKubelet = (): Promise<void> =>
      cluster.startKubelet(shims[0]?.address ?? 'unix:///run/containerd/containerd.sock', kubelet);
    await startKubelet();
    say(`${name}: kubelet is ready`);
    const folder = join('/run/gates', name.replaceAll(' ', '-'));
    const killResizer: Stage['killResizer'] = async (onKilled) => {
      if (hasVolumeGate) {
        await cluster.stopKubelet();
        onKilled();
        await startKubelet();
      } else {
        shims.at(-1)?.process.kill('SIGKILL');
        await shims.at(-1)?.exited;
        onKilled();
        shims.push(await startShim(cluster, usesApi));
      }
    };
    const stage: Stage = {
      ...{
        side,
        api: cluster.api,
        kubelet: cluster.kubelet,
        pods,
        events,
        registry,
        folder,
        hasVolumeGate,
        killResizer,
      },
      shim: () => shims.at(-1),
    };
    if (configuration.filler !== undefined) await fill(stage, configuration.filler);
    observations[name] = await runRows(stage, configuration, rows);
    if (configuration.filler !== undefined) await cluster.api.delete(`${PODS}/${FILLER}`);
    writeFileSync(join(out, 'observations.json'), JSON.stringify(observations));
    if (!(await pods.until(() => pods.all.length === 0, 180_000 * slowness)))
      throw new Error('deleted pods still exist after a minute');
    say(`${name}: all pods are gone`);
  } finally {
    await cluster.stopKubelet();
    pods.end();
    events.end();
    await registry.stop();
    await shims.at(-1)?.stop();
    const lines = shims.flatMap(({ log }) => log);
    writeFileSync(join(out, 'shim.log'), lines.map((line) => `${JSON.stringify(line)}\n`).join(''), {
      flag: 'a',
    });
    rmSync(STATE, { recursive: true, force: true });
  }
}

async function startShim(cluster: Cluster, usesApi: boolean): Promise<ShimProcess> {
  // With the rights of deploy/rbac.yaml, and no others.
  const api = usesApi ? ['--kubeconfig', await cluster.kubeconfigOf('kube-system', 'cri-resize-shim')] : [];
  return ShimProcess.start({ args: ['--state-folder', STATE, '--resize-listen', RESIZE_SOCKET, ...api] });
}

/** Starts the pod that runs next to those of the rows. */
async function fill({ api, pods }: Stage, spec: PodSpec): Promise<void> {
  await api.create(`${PODS}?fieldValidation=Strict`, manifestOf(FILLER, spec, NODE, '/run'));
  if (!(await pods.until(() => pods.get(FILLER)?.status.phase === 'Running', 180_000 * slowness)))
    throw new Error(`the pod ${FILLER} does not run`);
}

async function runRows(
  stage: Stage,
  { name, atOnce = AT_ONCE }: Configuration,
  rows: readonly Row[],
): Promise<Record<string, Observation>> {
  const results: Record<string, Observation> = {};
  const queue = rows.entries();
  const worker = async (): Promise<void> => {
    for (const [index, row] of queue) {
      const pod = `row-${index}`;
      const begun = Date.now();
      results[row.title] = await runRow(stage, row, pod).catch((error: unknown) => ({ error: String(error) }));
      await stage.api.delete(`${PODS}/${pod}`).catch(() => undefined);
      const seconds = ((Date.now() - begun) / 1000).toFixed(1);
      say(`${name}: ${row.title} (${seconds} s)`);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return results;
}

/** Adds compressed memory as swap, because the node has no disk. */
function addSwap(): void {
  execFileSync('modprobe', ['zram']);
  writeFileSync('/sys/block/zram0/disksize', '1G');
  execFileSync('mkswap', ['/dev/zram0']);
  execFileSync('swapon', ['/dev/zram0']);
}

await main();
