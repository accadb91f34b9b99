import { weightOfShares } from '../../src/cgroups/values/conversions.ts';
import { cpuShares } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { Resources } from '../support/cri/client.ts';
import type { QosClass } from '../support/cri/pod.ts';
import type { Amount, Amounts, MatrixContainer, PodAmounts } from './cases.ts';
import { amountsOf } from './cases.ts';

/**
 * The numbers that kubelet computes from a pod's manifest: pkg/kubelet/cm/helpers_linux.go and kuberuntime, 1.33 to
 * 1.36.
 */

/** kubelet's default CFS period in microseconds. */
export const PERIOD = 100_000;
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
const MIN_QUOTA = 1000;

/** Returns CPU shares (kubelet's MilliCPUToShares). */
export const sharesOf = (milliCpu: number): number =>
  Math.min(MAX_SHARES, Math.max(MIN_SHARES, Math.floor((milliCpu * 1024) / 1000)));

/** Returns the quota in microseconds, 0 for no limit (kubelet's MilliCPUToQuota). */
export const quotaOf = (milliCpu: number): number =>
  milliCpu === 0 ? 0 : Math.max(MIN_QUOTA, Math.floor((milliCpu * PERIOD) / 1000));

/** Returns the weight that kubelet writes to a pod's cgroup (getCPUWeight). */
export const podWeight = (shares: number): number => weightOfShares(cpuShares(shares), 'old');

/**
 * Returns the shares that kubelet derives from the weight of a pod's cgroup (CPUWeightToCPUShares). They may be lower
 * than the shares that led to the weight: 102 shares are weight 4, and weight 4 is 80 shares.
 */
export const sharesOfPodWeight = (weight: number): number => Math.floor(((weight - 1) * 262_142) / 9999) + 2;

/** Returns the QoS class of a new pod (ComputePodQOS). A resize does not change the class. */
export function qosClass(containers: readonly MatrixContainer[], amounts: PodAmounts): QosClass {
  const all = containers.flatMap(({ name }) => [amountsOf(amounts, name).cpu, amountsOf(amounts, name).memory]);
  if (all.every((amount) => amount?.request === undefined && amount?.limit === undefined)) return 'besteffort';
  return all.every(isGuaranteed) ? 'guaranteed' : 'burstable';
}

const isGuaranteed = (amount: Amount | undefined): boolean =>
  amount?.limit !== undefined && amount.request === amount.limit;

/**
 * Returns the resources that kubelet sends for a container (generateLinuxContainerResources). No limit is 0, which
 * means no change. A memory request is sent as with the feature gate MemoryQoS, the only way that sets it in the
 * kernel.
 */
export function containerResources({ cpu, memory }: Amounts, qos: QosClass): Resources {
  return {
    cpu_period: PERIOD,
    cpu_quota: quotaOf(cpu?.limit ?? 0),
    cpu_shares: sharesOf(cpu?.request ?? 0),
    memory_limit_in_bytes: (memory?.limit ?? 0) * MiB,
    unified: { 'memory.oom.group': '1', [reservationFile(qos)]: String((memory?.request ?? 0) * MiB) },
  };
}

/** Returns the file of a memory request: memory that the kernel never reclaims, or reclaims last. */
export const reservationFile = (qos: QosClass): 'memory.min' | 'memory.low' =>
  qos === 'guaranteed' ? 'memory.min' : 'memory.low';

/** The values of a pod's cgroup, undefined for no limit. Memory in bytes, the quota in microseconds. */
export interface PodValues {
  readonly memory: number | undefined;
  readonly quota: number | undefined;
  readonly shares: number;
}

/** Returns the values of a pod's cgroup (ResourceConfigForPod). */
export function podValues(containers: readonly MatrixContainer[], amounts: PodAmounts, qos: QosClass): PodValues {
  if (qos === 'besteffort') return { memory: undefined, quota: undefined, shares: MIN_SHARES };
  const memory = total(containers, (name) => amountsOf(amounts, name).memory?.limit);
  const quota = total(containers, (name) => amountsOf(amounts, name).cpu?.limit);
  const requests = total(containers, (name) => amountsOf(amounts, name).cpu?.request ?? 0);
  return {
    memory: memory === undefined ? undefined : memory * MiB,
    quota: quota === undefined ? undefined : quotaOf(quota),
    shares: sharesOf(requests ?? 0),
  };
}

/**
 * Returns the maximum amount of a resource that a pod uses: the sum of its containers and sidecars, or an init
 * container with the sidecars before it. Undefined if a container declares no amount.
 */
function total(containers: readonly MatrixContainer[], of: (name: string) => number | undefined): number | undefined {
  let running = 0;
  let starting = 0;
  for (const { name, role } of containers) {
    const figure = of(name);
    if (figure === undefined) return undefined;
    if (role === 'init') starting = Math.max(starting, running + figure);
    else running += figure;
  }
  return Math.max(running, starting);
}
