import { MIN_CPU_SHARES, wholePages } from '../../cgroups/index.ts';
import { type CpuShares, PAGE_SIZE, cpuShares } from '../../core/quantities/index.ts';
import { type MilliCpu, sharesToMilliCpu } from '../../kubelet/index.ts';
import {
  type Amounts,
  type DeclaredContainer,
  type LiveContainer,
  type PodState,
  NO_CPU_LIMIT,
  amountsOf,
} from '../../sandbox/index.ts';
import { type DesiredPod, memoryRequestIn } from '../model/index.ts';
import type { Resource } from './pod-requests.ts';

/** A declared container with its limits and requests. */
export interface ContainerAmounts extends Pick<DeclaredContainer, 'name' | 'kind'> {
  readonly limits: Amounts;
  /** The requests that are known. */
  readonly requests: Amounts;
  /** Whether each request is known: one that is known and absent is not declared. */
  readonly knows: { readonly memory: boolean; readonly milliCpu: boolean };
}

/**
 * Returns the limits and requests that a pod's declared containers have after a resize. Limits of running containers are the kernel's.
 * A CPU request is what the runtime has as shares; a memory request is what an earlier resize has set, kubelet has admitted, or the
 * spec says. Containers that have no part in the pod limit are left out.
 */
export function amountsAfter({ declared, containers }: PodState, desired: DesiredPod): ContainerAmounts[] {
  const live = new Map(containers.map((container) => [container.id, container]));
  return (declared?.containers ?? [])
    .filter(({ isUncounted }) => isUncounted !== true)
    .map((container) =>
      amountsOfOne(container, container.id === undefined ? undefined : live.get(container.id), desired),
    );
}

/** Returns the limits and requests that the containers have now. `desired` has the requests of earlier resizes. */
export const amountsNow = (state: PodState, desired: DesiredPod): ContainerAmounts[] =>
  amountsAfter(state, unchanged(desired));

/** Returns a request without its changes. */
export const unchanged = (desired: DesiredPod): DesiredPod => ({
  ...desired,
  pod: {},
  containers: new Map(),
  volumes: new Map(),
  memoryRequests: { containers: {} },
});

/** The largest request that leads to the minimum of shares. */
const LEAST_REQUEST = sharesToMilliCpu(cpuShares(MIN_CPU_SHARES));

function amountsOfOne(
  { name, kind, limits = {}, requests }: DeclaredContainer,
  live: LiveContainer | undefined,
  desired: DesiredPod,
): ContainerAmounts {
  const wanted = desired.containers.get(name) ?? {};
  const now = live === undefined ? limits : amountsOf(live);
  const memory =
    memoryRequestIn(desired.memoryRequests, name) ??
    memoryRequestIn(desired.earlierMemoryRequests, name) ??
    requests?.memory;
  const milliCpu = requestOfShares(wanted.shares ?? live?.shares, requests?.milliCpu);
  const changed = amountsOf({ memory: wanted.memory ?? 'max', cpu: wanted.cpu ?? NO_CPU_LIMIT });
  return {
    name,
    kind,
    limits: pick(
      wanted.memory === undefined ? now.memory : changed.memory,
      wanted.cpu === undefined ? now.milliCpu : changed.milliCpu,
    ),
    requests: pick(memory, milliCpu),
    knows: {
      memory: memory !== undefined || requests !== undefined,
      milliCpu: wanted.shares !== undefined || live?.shares !== undefined || requests !== undefined,
    },
  };
}

/**
 * Returns the CPU request that shares stand for, of a container or a pod. The minimum stands for no request, as kubelet writes it
 * (MilliCPUToShares), and for one of up to two thousandths of a CPU: the request declared so far tells which. Without shares (undefined or
 * 0) the declared request counts.
 */
export function requestOfShares(
  shares: CpuShares | 0 | undefined = 0,
  declared: MilliCpu | undefined,
): MilliCpu | undefined {
  if (shares > MIN_CPU_SHARES) return sharesToMilliCpu(cpuShares(shares));
  if (shares < MIN_CPU_SHARES || declared === undefined) return declared;
  return Math.min(declared, LEAST_REQUEST);
}

/**
 * Returns an amount as it is compared with another one: memory in whole pages, because the kernel rounds a limit down and a request is
 * stored as asked.
 */
export const comparable = (resource: Resource, amount: number): number =>
  resource === 'memory' ? wholePages(amount, PAGE_SIZE) : amount;

/** Returns the amounts that are known. A CPU amount of 0 counts as none. */
export const pick = (memory: Amounts['memory'], milliCpu: MilliCpu | undefined): Amounts => ({
  ...(memory !== undefined && { memory }),
  ...(milliCpu !== undefined && milliCpu > 0 && { milliCpu }),
});
