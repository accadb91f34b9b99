import type { Bytes, CpuShares } from '../../core/quantities/numbers.ts';
import type { MilliCpu } from '../../kubelet/formulas.ts';

/**
 * The kind of a container. `sidecar` is an init container that restarts (`restartPolicy: Always`), `init` is one that
 * runs to its end. `unknown`: the source does not report, which is usual without the pod's spec.
 */
export type ContainerKind = 'app' | 'sidecar' | 'init' | 'ephemeral' | 'unknown';

/**
 * `declared`: the runtime has no container of it: not created yet, or removed. `ended`: its newest container has ended,
 * and may be replaced by a new one; an ordinary init container stays `ended` after its removal, if the pod's spec
 * reports its kind.
 */
export type ContainerPhase = 'declared' | 'created' | 'running' | 'ended';

/**
 * The source of a pod's declaration, best first: the pod's spec in the API server; kubelet's `allocated_pods_state`;
 * the labels that kubelet sets on its containers; only the containers that the runtime has.
 */
export type DeclaredSource = 'spec' | 'kubelet-state' | 'kubelet-labels' | 'inference';

export type QosClass = 'Guaranteed' | 'Burstable' | 'BestEffort';

/** Limits or requests as Kubernetes declares them. An absent value is not declared: no limit, or no request. */
export interface Amounts {
  readonly memory?: Bytes;
  readonly milliCpu?: MilliCpu;
}

/** The effect of a resize of a resource on the container (KEP-1287). */
export type RestartPolicy = 'NotRequired' | 'RestartContainer';
export type ResizePolicy = Readonly<Record<'cpu' | 'memory', RestartPolicy>>;

/** Whether kubelet starts an app container again when it has ended (pod's and container's `restartPolicy`). */
export type AppRestartPolicy = 'Always' | 'OnFailure' | 'Never';

/** A container that the pod declares, whether or not it runs. */
export interface DeclaredContainer {
  readonly name: string;
  readonly kind: ContainerKind;
  readonly state: ContainerPhase;
  /** The id of the running container, otherwise of the newest one. Absent while the runtime has none. */
  readonly id?: string;
  /** The declared limits. For a running container, the kernel's limits take precedence. Absent: not known. */
  readonly limits?: Amounts;
  /** From the spec or from kubelet's state. Absent: not known. */
  readonly requests?: Amounts;
  /** The CPU shares that the runtime stores for a container that does not run, if no source has its requests. */
  readonly shares?: CpuShares;
  /** Only from the spec. */
  readonly resizePolicy?: ResizePolicy;
  /** Only from the spec, of app containers. Absent: not known, or rules decide for this pod (`restartPolicyRules`). */
  readonly restartPolicy?: AppRestartPolicy;
  /** An ordinary init container missing in kubelet's state, which lists resizable init containers since 1.36. */
  readonly isFixed?: boolean;
  /** Whether it may be an ordinary init container, because the source does not report the kind. */
  readonly mayBeInit?: boolean;
  /** Whether the pod limit excludes it: it ended permanently as far as known, or is no app container and unlimited. */
  readonly isUncounted?: boolean;
}

/** A pod as it is declared: the rules of a resize hold for all its containers, not only for those that run. */
export interface DeclaredPod {
  readonly source: DeclaredSource;
  /** From the spec: init containers and sidecars in start order, then the others. Otherwise by creation. */
  readonly containers: readonly DeclaredContainer[];
  /** The pod-level limits (KEP-2837). They replace the sum of the containers' limits, each resource by itself. */
  readonly limits?: Amounts;
  readonly requests?: Amounts;
  readonly qosClass?: QosClass;
  /** Only from the spec. */
  readonly priority?: number;
  /** Whether the pod has ended for good. Only from the spec. */
  readonly hasEnded?: true;
  /** Memory-backed volumes by name. Only from the spec. */
  readonly volumes: ReadonlyMap<string, DeclaredVolume>;
}

/** A memory-backed emptyDir. */
export interface DeclaredVolume {
  /** Absent: as large as the pod's memory limit. */
  readonly sizeLimit?: Bytes;
}

/** Returns the pod with this container running, alone of its name. Counts it even if the last one ended well. */
export function withRunning(
  pod: DeclaredPod,
  { containerId, name }: { readonly containerId: string; readonly name: string },
): DeclaredPod {
  const running = { state: 'running', id: containerId, isUncounted: false } as const;
  return { ...pod, containers: pod.containers.map((one) => (one.name === name ? { ...one, ...running } : one)) };
}
