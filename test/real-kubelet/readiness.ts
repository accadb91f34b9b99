import { type Cluster, NODE, POD_ON_NODE, until } from './cluster.ts';

const PODS = '/api/v1/namespaces/default/pods';

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly lastTransitionTime: string;
}

/** Returns the condition Ready of the node. Its time changes if the node was not ready meanwhile. */
export async function readiness(cluster: Cluster): Promise<Pick<Condition, 'status' | 'lastTransitionTime'>> {
  const { status } = await cluster.api.get<{ status: { conditions: Condition[] } }>(`/api/v1/nodes/${NODE}`);
  const { status: is, lastTransitionTime } = status.conditions.find(({ type }) => type === 'Ready')!;
  return { status: is, lastTransitionTime };
}

/** Makes a pod, waits until it runs, and deletes it. */
export async function runsPod(cluster: Cluster, name: string): Promise<void> {
  await cluster.api.create(PODS, {
    metadata: { name },
    spec: {
      ...POD_ON_NODE,
      containers: [
        { name: 'a', image: 'localhost/busybox:1', imagePullPolicy: 'Never', command: ['sleep', '1000000'] },
      ],
    },
  });
  await until(
    async () => (await cluster.api.get<{ status: { phase: string } }>(`${PODS}/${name}`)).status.phase === 'Running',
    `${name} to run`,
  );
  await cluster.api.delete(`${PODS}/${name}`);
}
