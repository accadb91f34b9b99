import { type Bytes, bytes } from '../../core/quantities/index.ts';
import { type MilliCpu, type PodEntry, quotaToMilliCpu } from '../../kubelet/index.ts';
import type { Amounts, ContainerKind, PodState, SpecContainer } from '../../sandbox/index.ts';

/** The requests of a pod or of several, as the scheduler and kubelet add them up. */
export interface TotalRequests {
  readonly memory: Bytes;
  readonly milliCpu: MilliCpu;
}

export const RESOURCES = ['memory', 'milliCpu'] as const;
export type Resource = (typeof RESOURCES)[number];

export interface RequestedPodParts {
  /** Init containers and sidecars in the order of their start. */
  readonly containers: readonly { readonly kind: ContainerKind; readonly requests?: Amounts }[];
  /** The pod-level requests: they replace the sum, each resource by itself. */
  readonly level?: Amounts | undefined;
  readonly overhead?: PodState['overhead'] | undefined;
}

/**
 * Returns the requests of a pod (k8s.io/component-helpers resource/helpers.go, PodRequests): the sum of app containers and sidecars,
 * or an init container with the sidecars before it if that is more, plus the overhead. Ephemeral containers request nothing.
 */
export function podRequests({ containers, level, overhead }: RequestedPodParts): TotalRequests {
  const total = (resource: Resource): number => {
    const own = level?.[resource] ?? sumOf(containers, resource);
    return own + (overhead === undefined ? 0 : overheadRequests(overhead)[resource]);
  };
  return { memory: bytes(total('memory')), milliCpu: total('milliCpu') };
}

function sumOf(containers: RequestedPodParts['containers'], resource: Resource): number {
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
 * Returns what kubelet has admitted for a pod. Without the spec, the kinds of the containers are not known, and the init containers
 * that kubelet lists since 1.36 count as app containers.
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
