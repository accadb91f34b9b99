import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { manifestsOf } from '../../deploy/manifests.ts';
import type { Cluster } from '../cluster.ts';
import { POD_ON_NODE, until } from '../cluster.ts';
import { IMAGE } from '../table/pod.ts';
import type { Scenario, ScenarioContainer } from './scenarios.ts';

/** The objects of a scenario in the API. No controller manager runs, so the pods name their ReplicaSet themselves. */

export const VOLUME = 'files';

const labelsOf = (name: string): Readonly<Record<string, string>> => ({ app: name });

/** A pod that is never entirely idle: cAdvisor measures an idle cgroup less often. */
const COMMAND = ['sh', '-c', 'while :; do sleep 1; done'];

const usesVolume = ({ uses }: ScenarioContainer): boolean => uses.some(({ kind }) => kind === 'volume');

function podSpec({ containers }: Scenario): object {
  return {
    ...POD_ON_NODE,
    containers: containers.map((container) => {
      const memory = `${container.from}Mi`;
      return {
        name: container.name,
        image: IMAGE,
        imagePullPolicy: 'Never',
        command: COMMAND,
        resources: { limits: { memory }, requests: { cpu: '1m', memory } },
        ...(usesVolume(container) && { volumeMounts: [{ name: VOLUME, mountPath: '/files' }] }),
      };
    }),
    ...(containers.some(usesVolume) && { volumes: [{ name: VOLUME, emptyDir: { medium: 'Memory' } }] }),
  };
}

/** A ReplicaSet that only states the number of replicas. */
export const replicaSet = (name: string, scenario: Scenario): object => ({
  metadata: { name },
  spec: {
    replicas: scenario.replicas,
    selector: { matchLabels: labelsOf(name) },
    template: { metadata: { labels: labelsOf(name) }, spec: podSpec(scenario) },
  },
});

export const podOf = (name: string, owner: { name: string; uid: string }, scenario: Scenario): object => ({
  metadata: {
    name,
    labels: labelsOf(owner.name),
    ownerReferences: [{ apiVersion: 'apps/v1', kind: 'ReplicaSet', ...owner, controller: true }],
  },
  spec: podSpec(scenario),
});

export const verticalPodAutoscaler = (name: string): object => ({
  apiVersion: 'autoscaling.k8s.io/v1',
  kind: 'VerticalPodAutoscaler',
  metadata: { name },
  spec: {
    targetRef: { apiVersion: 'apps/v1', kind: 'ReplicaSet', name },
    // Allows the eviction of a single replica.
    updatePolicy: { updateMode: 'InPlaceOrRecreate', minReplicas: 1 },
    resourcePolicy: { containerPolicies: [{ containerName: '*', controlledResources: ['memory'] }] },
  },
});

/** The status that VPA's recommender would write. The updater's next round changes requests out of bounds. */
export const recommendation = ({ containers }: Scenario): object => ({
  status: {
    recommendation: {
      containerRecommendations: containers.map(({ name, to }) => {
        const memory = { memory: `${to}Mi` };
        return { containerName: name, target: memory, lowerBound: memory, upperBound: memory, uncappedTarget: memory };
      }),
    },
  },
});

const programs = process.env['VPA_PROGRAMS'] ?? '';
const logs = process.env['NODE_OUT'] ?? '/tmp';

export const AUTOSCALERS = '/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers';

/** Adds the resource VerticalPodAutoscaler to the API. */
export async function defineAutoscalers(cluster: Cluster): Promise<void> {
  for (const manifest of manifestsOf(readFileSync(join(programs, 'crd.yaml'), 'utf8')))
    await cluster.api.create('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', manifest);
  await until(() => cluster.api.get(AUTOSCALERS).then(() => true), 'the API of VerticalPodAutoscaler');
}

/** The updater of the Vertical Pod Autoscaler. Its first round is one interval after its start. */
export class Updater {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** @param interval of its rounds, in seconds */
  static start(cluster: Cluster, interval: number): Updater {
    const log = openSync(join(logs, `updater-${interval}.log`), 'a');
    const args = [
      ...['--kubeconfig', cluster.kubeconfig, `--updater-interval=${interval}s`, '--v=5'],
      // Nothing creates evicted pods again, so there is no admission controller to wait for.
      '--use-admission-controller-status=false',
      // All replicas in one round. Without it, the updater takes half of them, and the others in the next rounds.
      '--in-place-skip-disruption-budget',
    ];
    const child = spawn(join(programs, 'bin', 'vpa-updater'), args, { stdio: ['ignore', log, log] });
    closeSync(log);
    return new Updater(child);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGTERM');
    await once(this.#child, 'exit');
  }
}
