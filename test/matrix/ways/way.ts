import type { Resources } from '../../support/cri/client.ts';
import type { Amount, Amounts, PodAmounts } from '../cases.ts';
import { amountsOf } from '../cases.ts';
import type { PodValues } from '../kubelet-values.ts';
import { containerResources } from '../kubelet-values.ts';
import type { MatrixPod, Reserved } from '../matrix-pod.ts';

/** A way to resize a pod: the calls and their order. */
export interface Way {
  readonly name: string;
  /** Whether the way can remove a limit. */
  readonly removesLimits: boolean;
  /** Returns the memory requests of the containers, in MiB, that the kernel has after a resize to these amounts. */
  readonly reservedAfter: (pod: MatrixPod, to: PodAmounts) => Reserved;
  /** Resizes a pod from `from` to `to`, and checks the answer, if any. `before` are the values of its cgroup. */
  readonly resize: (pod: MatrixPod, from: PodAmounts, to: PodAmounts, before: PodValues) => Promise<void>;
  /** Returns the values of the pod's cgroup after a resize from `before`. */
  readonly podAfter: (pod: MatrixPod, before: PodValues, to: PodAmounts) => PodValues;
  /** The changes that the way rejects, if any. A rejected resize leaves the pod unchanged. */
  readonly refusal?: {
    readonly applies: (pod: MatrixPod, to: PodAmounts) => boolean;
    /** Resizes a pod, and asserts that the resize is rejected. */
    readonly resize: (pod: MatrixPod, to: PodAmounts) => Promise<void>;
  };
}

/**
 * Updates like those of `crictl update` and node agents: one for each container with all its values, and none for the
 * pod. The tight limits of the pod follow. A pod without a limit stays without one, and its weight stays.
 */
export const crictl: Way = {
  name: 'crictl-style updates',
  removesLimits: true,
  reservedAfter: (pod, to) => pod.requests(to),
  async resize(pod, from, to) {
    for (const [name, id] of pod.running.containers) {
      const [before, after] = [amountsOf(from, name), amountsOf(to, name)];
      if (before !== after) await pod.running.client.updateContainer(id, update(pod, before, after));
    }
  },
  podAfter(pod, before, to) {
    const { memory, quota } = pod.values(to);
    return {
      memory: before.memory === undefined ? undefined : memory,
      quota: before.quota === undefined ? undefined : quota,
      shares: before.shares,
    };
  },
};

/** Returns an update that removes limits with -1: a limit that is left out stays. */
function update(pod: MatrixPod, from: Amounts, to: Amounts): Resources {
  const resources = containerResources(to, pod.qos);
  return {
    ...resources,
    ...(isRemoved(from.memory, to.memory) && { memory_limit_in_bytes: -1 }),
    ...(isRemoved(from.cpu, to.cpu) && { cpu_quota: -1 }),
  };
}

const isRemoved = (from: Amount | undefined, to: Amount | undefined): boolean =>
  from?.limit !== undefined && to?.limit === undefined;
