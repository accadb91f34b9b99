import { MAX_CPU_SHARES, MIN_CPU_SHARES, wholePages } from '../../cgroups/index.ts';
import { type Bytes, bytes, type CpuShares, cpuShares, PAGE_SIZE } from '../../core/index.ts';
import { type MilliCpu, type PodEntry, quotaToMilliCpu, sharesToMilliCpu } from '../../kubelet/index.ts';
import { type DesiredPod, memoryRequestIn } from '../plan/resize-request.ts';
import type { Amounts, ContainerKind, DeclaredContainer } from '../pods/declared-pod.ts';
import type { SpecContainer } from '../pods/pod-spec.ts';
import type { LiveContainer, PodState } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT } from '../pods/read-pod.ts';
import { amountsOf } from '../pods/runtime-containers.ts';

/** The requests of a pod or of several, as the scheduler and kubelet add them up. */
export interface TotalRequests {
  readonly memory: Bytes;
  readonly milliCpu: MilliCpu;
}

export const RESOURCES = ['memory', 'milliCpu'] as const;
export type Resource = (typeof RESOURCES)[number];

/** The containers and pod-level amounts from which the requests of a pod are computed. */
export interface CountedPod {
  /** Init containers and sidecars in the order of their start. */
  readonly containers: readonly { readonly kind: ContainerKind; readonly requests?: Amounts }[];
  /** The pod-level requests. They replace the sum, separately for each resource. */
  readonly level?: Amounts | undefined;
  readonly overhead?: PodState['overhead'] | undefined;
}

/**
 * Returns the requests of a pod (k8s.io/component-helpers resource/helpers.go, PodRequests): the sum of app containers
 * and sidecars, or an init container with the sidecars before it if that is more, plus the overhead. Ephemeral
 * containers request nothing.
 */
export function podRequests({ containers, level, overhead }: CountedPod): TotalRequests {
  const total = (resource: Resource): number => {
    const own = level?.[resource] ?? sumOf(containers, resource);
    return own + (overhead === undefined ? 0 : overheadRequests(overhead)[resource]);
  };
  return { memory: bytes(total('memory')), milliCpu: total('milliCpu') };
}

function sumOf(containers: CountedPod['containers'], resource: Resource): number {
  let [sum, sidecars, highest] = [0, 0, 0];
  for (const { kind, requests = {} } of containers) {
    const requested = requests[resource] ?? 0;
    if (kind === 'ephemeral') continue;
    if (kind === 'init') {
      highest = Math.max(highest, sidecars + requested);
      continue;
    }
    sum += requested;
    if (kind === 'sidecar') sidecars += requested;
  }
  return Math.max(sum, highest);
}

/** Returns what the overhead adds to the requests of a pod. */
export const overheadRequests = ({ memory, cpu: { quota, period } }: PodState['overhead']): TotalRequests => ({
  memory,
  milliCpu: quota === 'max' ? 0 : quotaToMilliCpu(quota, period),
});

/**
 * Returns the requests that kubelet has admitted for a pod. Without the spec, the kinds of the containers are unknown,
 * and the init containers that kubelet lists since 1.36 count as app containers.
 */
export function admittedRequests(
  { requests }: PodEntry,
  spec: readonly SpecContainer[] | undefined,
  overhead: PodState['overhead'] | undefined,
): TotalRequests {
  const listed = [...(requests?.containers ?? [])].map(([name, amounts]) => ({
    name,
    kind: 'app' as const,
    requests: amounts,
  }));
  const declared = spec?.map(({ name, kind, requests: asked }) => ({
    kind,
    requests: requests?.containers.get(name) ?? asked,
  }));
  return podRequests({ containers: declared ?? listed, level: requests?.pod, overhead });
}

/** Returns the sum of the requests of all pods. */
export const addRequests = (all: readonly TotalRequests[]): TotalRequests => ({
  memory: bytes(all.reduce((sum, { memory }) => sum + memory, 0)),
  milliCpu: all.reduce((sum, { milliCpu }) => sum + milliCpu, 0),
});

/** A declared container with its limits and requests. */
export interface ContainerAmounts extends Pick<DeclaredContainer, 'name' | 'kind'> {
  readonly limits: Amounts;
  /** The requests that are known. */
  readonly requests: Amounts;
  /** Whether each request is known. A request that is known and absent is not declared. */
  readonly knows: { readonly memory: boolean; readonly milliCpu: boolean };
}

/**
 * Returns the limits and requests of a pod's declared containers after a resize. The limits of running containers come
 * from the kernel. A CPU request comes from the shares that the runtime stores; a memory request from an earlier
 * resize, from kubelet's admission or from the spec. Omits containers that do not count in the pod limit.
 */
export function amountsAfter({ declared, containers }: PodState, desired: DesiredPod): ContainerAmounts[] {
  const live = new Map(containers.map((container) => [container.id, container]));
  return (declared?.containers ?? [])
    .filter(({ isUncounted }) => isUncounted !== true)
    .map((container) =>
      amountsOfOne(container, container.id === undefined ? undefined : live.get(container.id), desired),
    );
}

/** Returns the present limits and requests of the containers. `desired` contains the requests of earlier resizes. */
export const amountsNow = (state: PodState, desired: DesiredPod): ContainerAmounts[] =>
  amountsAfter(state, unchanged(desired));

/** Removes the changes from a resize request. */
export const unchanged = (desired: DesiredPod): DesiredPod => ({
  ...desired,
  pod: {},
  containers: new Map(),
  volumes: new Map(),
  memoryRequests: { containers: {} },
});

/** The largest CPU request that results in the minimum shares. */
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
  const cpuLimit = wanted.cpu === undefined ? now.milliCpu : changed.milliCpu;
  // Shares have a maximum: a request above it is assumed to equal the limit.
  const isMost = (wanted.shares ?? live?.shares) === MAX_CPU_SHARES && cpuLimit !== undefined;
  return {
    name,
    kind,
    limits: pick(wanted.memory === undefined ? now.memory : changed.memory, cpuLimit),
    requests: pick(memory, isMost ? Math.max(cpuLimit, milliCpu ?? 0) : milliCpu),
    knows: {
      memory: memory !== undefined || requests !== undefined,
      milliCpu: wanted.shares !== undefined || live?.shares !== undefined || requests !== undefined,
    },
  };
}

/**
 * Returns the CPU request that corresponds to the shares of a container or a pod. The minimum shares mean no request
 * (kubelet's MilliCPUToShares) or a request of up to two thousandths of a CPU: the declared request shows which.
 * Without shares (undefined or 0), returns the declared request.
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
 * Returns an amount in a form that can be compared: memory in whole pages, because the kernel rounds a limit down,
 * whereas a request is stored unrounded.
 */
export const comparable = (resource: Resource, amount: number): number =>
  resource === 'memory' ? wholePages(amount, PAGE_SIZE) : amount;

/** Returns the amounts that are known. A CPU amount of 0 counts as none. */
export const pick = (memory: Amounts['memory'], milliCpu: MilliCpu | undefined): Amounts => ({
  ...(memory !== undefined && { memory }),
  ...(milliCpu !== undefined && milliCpu > 0 && { milliCpu }),
});

type Entries = ReadonlyMap<string, PodEntry>;

/** Whether kubelet has dropped a pod or admitted lower requests of one: others may fit now. */
export const areRequestsFreed = (before: Entries, after: Entries): boolean =>
  [...before].some(([uid, entry]) => {
    const now = after.get(uid);
    if (now === undefined) return true;
    // An unchanged entry stays the same object, and kubelet changes only a few at a time.
    if (now === entry) return false;
    const [then, left] = [requested(entry), requested(now)];
    return RESOURCES.some((resource) => left[resource] < then[resource]);
  });

const requested = (entry: PodEntry): TotalRequests => admittedRequests(entry, undefined, undefined);
