import { IMAGE } from '../table/pod.ts';
import { POD_ON_NODE } from '../cluster.ts';
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

/** A ReplicaSet that only says how many replicas there should be. */
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
    // One replica may be evicted, too.
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
