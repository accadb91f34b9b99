import type { Resources } from '../../support/cri/client.ts';
import type { PodAmounts, ResourceName } from '../cases.ts';
import { amountsOf, resourceNames } from '../cases.ts';
import { containerResources, PERIOD, podWeight, sharesOfPodWeight } from '../kubelet-values.ts';
import type { MatrixPod } from '../matrix-pod.ts';
import type { Way } from './way.ts';

/**
 * kubelet's own sequence (doPodResizeAction in pkg/kubelet/kuberuntime/kuberuntime_manager.go): memory, then CPU; for
 * each, increases of the pod, the containers, decreases of the pod. kubelet writes the pod's cgroup itself, and
 * notifies the runtime by UpdatePodSandboxResources: 1.33 to 1.35 afterwards, 1.36 before. It removes no limit
 * (kubernetes 128675).
 */
export const kubelet133 = asKubelet('kubelet 1.33 to 1.35', 'after');
export const kubelet136 = asKubelet('kubelet 1.36', 'before');

type Notice = 'before' | 'after';

function asKubelet(name: string, notice: Notice): Way {
  return {
    name,
    removesLimits: false,
    reservedAfter: (pod, to) => pod.requests(to),
    resize: (pod, from, to) => resize(pod, from, to, notice),
    podAfter: (pod, before, to) => {
      const { memory = before.memory, quota = before.quota, shares } = pod.values(to);
      return { memory, quota, shares };
    },
  };
}

/** The values that kubelet reads from the pod's cgroup and sends to the runtime: -1 is no limit. */
interface PodConfig {
  readonly memory: number;
  readonly quota: number;
  readonly shares: number;
}

async function resize(pod: MatrixPod, from: PodAmounts, to: PodAmounts, notice: Notice): Promise<void> {
  const found = readConfig(pod);
  const wanted = pod.values(to);
  const sandbox = new PodCgroup(pod, found, notice);
  let actuated = from;
  for (const resource of resourceNames) {
    const updates = containersToUpdate(pod, resource, from, to);
    if (updates.length === 0) continue;
    const [now, then] =
      resource === 'memory'
        ? [found.memory, wanted.memory ?? found.memory]
        : [found.quota, wanted.quota ?? found.quota];
    const limit: Partial<PodConfig> = resource === 'memory' ? { memory: then } : { quota: then };
    const shares = resource === 'cpu' ? wanted.shares : found.shares;
    if (then > now) await sandbox.set(limit);
    if (shares > found.shares) await sandbox.set({ shares });
    for (const name of updates) {
      actuated = { ...actuated, [name]: { ...amountsOf(actuated, name), [resource]: amountsOf(to, name)[resource] } };
      const resources = containerResources(amountsOf(actuated, name), pod.qos);
      await pod.running.client.updateContainer(pod.running.id(name), resources);
    }
    if (shares < found.shares) await sandbox.set({ shares });
    if (then < now) await sandbox.set(limit);
  }
}

/**
 * Returns the containers whose limit of a resource changes, or whose request changes if the limit stays: decreases
 * first.
 */
function containersToUpdate(pod: MatrixPod, resource: ResourceName, from: PodAmounts, to: PodAmounts): string[] {
  const names: string[] = [];
  for (const name of pod.running.containers.keys()) {
    const [now, then] = [amountsOf(from, name)[resource] ?? {}, amountsOf(to, name)[resource] ?? {}];
    const change = (then.limit ?? 0) - (now.limit ?? 0) || (then.request ?? 0) - (now.request ?? 0);
    if (change > 0) names.push(name);
    if (change < 0) names.unshift(name);
  }
  return names;
}

/** The pod's cgroup as kubelet manages it. */
class PodCgroup {
  #config: PodConfig;

  constructor(
    private readonly pod: MatrixPod,
    config: PodConfig,
    private readonly notice: Notice,
  ) {
    this.#config = config;
  }

  /** Writes the changed values, and notifies the runtime of all values. */
  async set(change: Partial<PodConfig>): Promise<void> {
    const merged = { ...this.#config, ...change };
    if (this.notice === 'before') await this.#notify(merged);
    this.#write(change);
    if (this.notice === 'after') await this.#notify(merged);
    this.#config = merged;
  }

  async #notify({ memory, quota, shares }: PodConfig): Promise<void> {
    const resources: Resources = {
      cpu_period: PERIOD,
      cpu_quota: quota,
      cpu_shares: shares,
      memory_limit_in_bytes: memory,
    };
    await this.pod.running.client.updatePod(this.pod.running.sandboxId, resources, { overhead: {} });
  }

  #write({ memory, quota, shares }: Partial<PodConfig>): void {
    this.pod.running.write({
      ...(memory !== undefined && { 'memory.max': memory === -1 ? 'max' : String(memory) }),
      ...(quota !== undefined && { 'cpu.max': `${quota === -1 ? 'max' : quota} ${PERIOD}` }),
      ...(shares !== undefined && { 'cpu.weight': String(podWeight(shares)) }),
    });
  }
}

function readConfig({ running }: MatrixPod): PodConfig {
  const limit = (text: string | undefined): number => (text === 'max' ? -1 : Number(text));
  return {
    memory: limit(running.read('memory.max')),
    quota: limit(running.read('cpu.max').split(' ')[0]),
    shares: sharesOfPodWeight(Number(running.read('cpu.weight'))),
  };
}
