import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { manifestsOf } from '../../deploy/manifests.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { Cluster } from '../cluster.ts';
import { ApiWatch } from '../table/observe.ts';
import type { Pod } from '../table/pod.ts';
import type { Side } from '../table/row.ts';
import { EVENTS, type KubernetesEvent, PODS } from '../table/run-row.ts';
import { defineAutoscalers, Updater } from './objects.ts';
import type { PodResult, ScenarioResult } from './result.ts';
import { runScenario, type Stage } from './run-scenario.ts';
import { batches, type Scenario } from './scenarios.ts';

/**
 * Runs in the test node as `vpa-inside SIDE RUNS INTERVALS NAMES`, with lists separated by commas. Runs the scenarios
 * of one side. Writes the results to $NODE_OUT/results.json after each run and progress to $NODE_OUT/progress.
 */

const [side, runs, intervals = '', names = ''] = process.argv.slice(2) as [Side, string, string?, string?];
const out = process.env['NODE_OUT'] ?? '/tmp';
const chosen = new Set(names.split(','));

const started = Date.now();
const say = (text: string): void =>
  appendFileSync(join(out, 'progress'), `${((Date.now() - started) / 1000).toFixed(0)} s: ${text}\n`);

const results: (ScenarioResult & { pods: PodResult[]; errors: string[]; runs: number })[] = [];

async function main(): Promise<void> {
  const cluster = await Cluster.start('/run/kubernetes');
  let shim: ShimProcess | undefined;
  try {
    for (const manifest of manifestsOf(readFileSync('deploy/rbac.yaml', 'utf8'))) await cluster.apply(manifest);
    await defineAutoscalers(cluster);
    if (side === 'shim') shim = await startShim(cluster);
    // Uses kubelet's default interval. Other tests set it to 5 s.
    await cluster.startKubelet(shim?.address ?? 'unix:///run/containerd/containerd.sock', { syncFrequency: '1m' });
    say('kubelet is ready');
    for (const interval of intervals.split(',').map(Number)) await runInterval(cluster, interval);
  } finally {
    await cluster.stop();
    await shim?.stop();
    const log = (shim?.log ?? []).map((line) => `${JSON.stringify(line)}\n`).join('');
    writeFileSync(join(out, 'shim.log'), log);
  }
}

async function startShim(cluster: Cluster): Promise<ShimProcess> {
  // With the rights of deploy/rbac.yaml, and no others.
  const kubeconfig = await cluster.kubeconfigOf('kube-system', 'cri-resize-shim');
  return ShimProcess.start({ args: ['--state-folder', '/var/lib/cri-resize-shim', '--kubeconfig', kubeconfig] });
}

async function runInterval(cluster: Cluster, interval: number): Promise<void> {
  const folder = join(out, 'files');
  mkdirSync(folder, { recursive: true });
  const pods = new ApiWatch<Pod>(cluster.api, PODS);
  const events = new ApiWatch<KubernetesEvent>(cluster.api, EVENTS);
  const updater = Updater.start(cluster, interval);
  const stage: Stage = { cluster, pods, events, folder, interval };
  try {
    for (const batch of batches) {
      const some = batch.filter(({ name }) => chosen.has(name));
      for (let run = 1; run <= Number(runs) && some.length > 0; run += 1)
        await Promise.all(some.map((scenario) => runOne(stage, scenario, run)));
    }
  } finally {
    await updater.stop();
    pods.end();
    events.end();
  }
}

async function runOne(stage: Stage, scenario: Scenario, run: number): Promise<void> {
  const { interval } = stage;
  let result = results.find((one) => one.scenario === scenario.name && one.interval === interval);
  if (result === undefined)
    results.push((result = { scenario: scenario.name, interval, runs: 0, pods: [], errors: [] }));
  const what = `rounds of ${interval} s, run ${run}, ${scenario.title}`;
  try {
    const pods = await runScenario(stage, scenario, `${interval}-${run}`);
    result.pods.push(...pods);
    say(`${what}: ${pods.map(({ end, ms }) => `${end} after ${(ms / 1000).toFixed(1)} s`).join(', ')}`);
  } catch (error) {
    result.errors.push(`run ${run}: ${String(error)}`);
    say(`${what}: ${String(error)}`);
  }
  result.runs += 1;
  writeFileSync(join(out, 'results.json'), JSON.stringify(results));
}

await main();
