import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { KernelName } from '../../support/node/index.ts';
import type { KubernetesRelease } from '../programs.ts';
import type { Amounts, Container, Pod, PodSpec, Reported, Resources } from './pod.ts';

/** The rows of the table: a pod, what happens to it, and what kubelet and the kernel have to report of it. */

/** Whether kubelet calls containerd directly, or the shim in front of it. */
export type Side = 'direct' | 'shim';

/**
 * The readings of a pod. A field has the label of the moment, the part of the pod and the name of the value:
 * `grown: pod memory.max`. Values that do not exist are absent.
 */
export type Observation = Readonly<Record<string, string>>;

/** Limits of containers and sizes of volumes, which one request changes. Each by name. */
export interface SizeChange {
  readonly memory?: Readonly<Record<string, string>>;
  readonly cpu?: Readonly<Record<string, string>>;
  readonly volumes?: Readonly<Record<string, string>>;
}

export type Step =
  | {
      readonly kind: 'until';
      readonly what: string;
      /** @param before the pod at the last resize request, or at its creation */
      readonly holds: (pod: Pod, before: Pod) => boolean;
      /** Only this side waits; both sides if absent. */
      readonly side?: Side;
    }
  /** Waits for an event of the pod. kubelet updates no condition while it pulls an image. */
  | { readonly kind: 'event'; readonly reason: string }
  | { readonly kind: 'resize'; readonly spec: object }
  /** Adds an ephemeral container, like `kubectl debug`. */
  | { readonly kind: 'debug'; readonly container: object }
  /** Opens a gate that a container waits for (`waitAt`, `failUntil` of pod.ts). */
  | { readonly kind: 'open'; readonly gate: string }
  /** `none yet` waits until the runtime has requested the slow image; the others answer the request. */
  | { readonly kind: 'pull'; readonly answer: 'none yet' | 'not found' | 'image' }
  /** Resizes the pod by the shim's ResizePod. The next observation has its reason. No effect without the shim. */
  | { readonly kind: 'resizectl'; readonly changes: readonly string[] }
  /** Waits until a volume has this size. Only the shim resizes volumes: nothing happens without it. */
  | { readonly kind: 'volume'; readonly name: string; readonly mebibytes: number }
  /**
   * Requests limits and sizes of volumes at once: of the API server if kubelet resizes volumes, and of ResizePod
   * otherwise. The next observation has the order of the changes.
   */
  | {
      readonly kind: 'sizes';
      readonly change: SizeChange;
      /** `fault`: the request waits, because it does not fit. */
      readonly until: 'done' | 'fault';
      /** The shim rolls the resize back to these values: instead of `until`. */
      readonly undone?: SizeChange;
      /** Kills the program that resizes once this value has changed, and starts it again: `pod memory.max`. */
      readonly killAt?: string;
    }
  /** Waits until these values are in force. */
  | { readonly kind: 'sized'; readonly change: SizeChange }
  /** Stores zeros in a volume. The next observation has the number of MiB that fit. */
  | { readonly kind: 'store'; readonly volume: string; readonly mebibytes: number }
  /** Removes what was stored. */
  | { readonly kind: 'empty'; readonly volume: string }
  /** Observes limits and volumes, also as the containers see them. */
  | { readonly kind: 'observe sizes'; readonly label: string }
  /** Waits until kubelet has measured the memory that the pod uses. */
  | { readonly kind: 'measured' }
  /** Waits until kubelet has completed, deferred or rejected the last resize, or cannot apply it. */
  | { readonly kind: 'decided' }
  /** @param events reasons of events: for each, a field reports whether the pod has such an event */
  | { readonly kind: 'observe'; readonly label: string; readonly events?: readonly string[] };

/** An intended difference of the shim. The row fails if either side has another value. */
export interface WantedDifference {
  readonly field: string;
  /** `undefined`: the field is absent. */
  /** Several, if it depends on timing. */
  readonly direct: string | readonly string[] | undefined;
  readonly shim: string | readonly string[] | undefined;
  readonly reason: string;
  /** In the table of volumes: it also exists if kubelet resizes volumes. */
  readonly isAlways?: true;
}

export interface Row {
  /** The title starts with the number of a finding (A1) if the row covers one. */
  readonly title: string;
  readonly pod: PodSpec;
  readonly steps: readonly Step[];
  /**
   * The first release of kubelet that behaves as the row expects; 1.36 if absent. With older releases, both sides are
   * only compared: neither has to reach the values, and a wait that times out on both sides is no fault.
   */
  readonly since?: KubernetesRelease;
  /** Values that both sides have to reach. Without them, two sides that fail in the same way would pass. */
  readonly expected: Observation;
  readonly wanted?: readonly WantedDifference[];
  /** Fields that depend on timing, with the reason. They are not compared. `up: app *` matches all fields of app. */
  readonly ignored?: Readonly<Record<string, string>>;
}

/** A configuration of kubelet and its rows. kubelet starts once with it on each side. */
export interface Configuration {
  readonly name: string;
  /** The first release of kubelet that supports the configuration, if not all do. */
  readonly since?: KubernetesRelease;
  /** Fields of KubeletConfiguration. */
  readonly kubelet: Readonly<Record<string, unknown>>;
  /** The kernel of the node that it needs. Default: `uml`. */
  readonly kernel?: KernelName;
  /** Adds swap to the node, which also remains for later configurations. */
  readonly swap?: true;
  /** Whether the shim has a connection to the API server (`--kubeconfig`). */
  readonly usesApi: boolean;
  /** A pod that runs next to those of the rows. */
  readonly filler?: PodSpec;
  /** The number of rows at the same time; 8 if absent. */
  readonly atOnce?: number;
  readonly rows: readonly Row[];
}

/** New resources of containers and of the pod. */
export interface Change {
  readonly containers?: Readonly<Record<string, Resources>>;
  readonly initContainers?: Readonly<Record<string, Resources>>;
  readonly pod?: Resources;
}

const byName = (parts: Readonly<Record<string, Resources>>): readonly Partial<Container>[] =>
  Object.entries(parts).map(([name, resources]) => ({ name, resources }));

/** Requests a resize of the API server. Its response is a field of the next observation. */
export const resize = ({ containers, initContainers, pod }: Change): Step => ({
  kind: 'resize',
  spec: {
    ...(containers && { containers: byName(containers) }),
    ...(initContainers && { initContainers: byName(initContainers) }),
    ...(pod && { resources: pod }),
  },
});

export const observe = (label: string, ...events: readonly string[]): Step => ({ kind: 'observe', label, events });

/** Requests a resize, waits until kubelet has completed it, and observes the pod. */
export const resized = (label: string, change: Change): readonly Step[] => [resize(change), ...settled(label)];

/** Waits until kubelet has completed the last resize, and observes the pod. */
export const settled = (label: string): readonly Step[] => [
  { kind: 'until', what: 'the resize is complete', holds: isResized },
  observe(label),
];

/**
 * Lowers the memory of a container by a restart. kubelet may be unable to read the memory usage of the pod then, for
 * example before the first measurement. In that case it does not change the pod limit: it has killed the container, and
 * starts it with the new limit (kubelet pkg/kubelet/kuberuntime/kuberuntime_manager.go, SyncPod, steps 8 and 9, and
 * validateMemoryResizeAction).
 */
export const loweredByRestart = (label: string, change: Change): readonly Step[] => [
  { kind: 'measured' },
  ...resized(label, change),
];

/** Requests a resize that the API server rejects, and observes the pod. */
export const rejected = (label: string, change: Change): readonly Step[] => [resize(change), observe(label)];

export const running = (...names: readonly string[]): Step => ({
  kind: 'until',
  what: `${names.join(' and ')} to run`,
  holds: (pod) => names.every((name) => statusOf(pod, name)?.state.running !== undefined),
});

/** Waits until a container of `failUntil` is ready, because it also runs for a moment before each failure. */
export const ready = (name: string, side?: Side): Step => ({
  kind: 'until',
  ...(side && { side }),
  what: `${name} to be ready`,
  holds: (pod) => statusOf(pod, name)?.ready === true,
});

/** Waits until kubelet lets a failed container wait for its next start. */
export const backingOff = (name: string): Step => ({
  kind: 'until',
  what: `${name} to be in CrashLoopBackOff`,
  holds: (pod) => statusOf(pod, name)?.state.waiting?.reason === 'CrashLoopBackOff',
});

export const statusOf = (pod: Pod, name: string) => allStatuses(pod).find((status) => status.name === name);

export const allStatuses = ({ status }: Pod) => [
  ...(status.initContainerStatuses ?? []),
  ...(status.containerStatuses ?? []),
  ...(status.ephemeralContainerStatuses ?? []),
];

/** Whether kubelet has seen the newest spec, reports no pending or running resize, and reports its resources. */
export function isResized(pod: Pod): boolean {
  const { spec, status, metadata } = pod;
  if (status.observedGeneration !== metadata.generation) return false;
  if (status.conditions?.some(({ type }) => type.startsWith('PodResize'))) return false;
  if (spec.resources && !reports(status, spec.resources, spec.overhead)) return false;
  return [...(spec.initContainers ?? []), ...spec.containers].every(({ name, resources }) => {
    const container = statusOf(pod, name);
    return container?.state.running === undefined || reports(container, resources ?? {});
  });
}

/** Whether kubelet reports that it has completed, deferred or rejected the last resize, or cannot apply it. */
export const isDecided = (pod: Pod): boolean =>
  isResized(pod) ||
  (pod.status.observedGeneration === pod.metadata.generation &&
    (pod.status.conditions?.some(
      ({ type, reason }) => type === 'PodResizePending' || (type === 'PodResizeInProgress' && reason === 'Error'),
    ) ??
      false));

/** Uses allocated, not reported requests: kubelet derives the reported CPU request from the coarse cpu.weight. */
const reports = (
  { resources, allocatedResources }: Reported,
  { limits, requests }: Resources,
  overhead: Amounts = {},
): boolean => {
  const includes = (reported: Amounts | undefined, asked: Amounts = {}): boolean =>
    Object.entries(asked).every(
      ([name, value]) => thousandths(reported?.[name]) === thousandths(value) + thousandths(overhead[name]),
    );
  return includes(resources?.limits, limits) && includes(allocatedResources, requests);
};

/** Parses a quantity: CPU in thousandths, rounded up, and memory in thousandths of a byte. */
export function thousandths(text = '0'): number {
  const [, number, unit = ''] = /^([\d.]+(?:e\d+)?)(\D*)$/.exec(text) ?? [];
  const factor = { u: 1e-3, m: 1, k: 1e6, M: 1e9, G: 1e12, Ki: 1000 * 2 ** 10, Mi: 1000 * MiB, Gi: 1000 * 2 ** 30 }[
    unit
  ];
  return Math.ceil(Number(number) * (factor ?? 1000));
}
