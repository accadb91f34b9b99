import type {
  Amounts,
  AppRestartPolicy,
  ContainerKind,
  DeclaredVolume,
  QosClass,
  ResizePolicy,
} from './declared-pod.ts';
import type { PodIdentity } from './pod-identity.ts';

/** The parts of a pod's spec in the API server that matter to a resize. */
export interface PodSpec {
  /** Init containers and sidecars in their order, then app containers, then ephemeral containers. */
  readonly containers: readonly SpecContainer[];
  /** The pod-level limits and requests (KEP-2837). */
  readonly limits: Amounts;
  readonly requests: Amounts;
  readonly qosClass: QosClass | undefined;
  /** 0 if the pod has none. */
  readonly priority: number;
  /** Whether the pod has ended for good: its phase is Succeeded or Failed. kubelet starts no container of it again. */
  readonly hasEnded?: true;
  /** Memory-backed volumes by name. */
  readonly volumes: ReadonlyMap<string, DeclaredVolume>;
}

export interface SpecContainer {
  readonly name: string;
  readonly kind: Exclude<ContainerKind, 'unknown'>;
  readonly limits: Amounts;
  readonly requests: Amounts;
  readonly resizePolicy: ResizePolicy;
  /** The restart policy of app containers. Absent: not known, or rules decide for this pod (`restartPolicyRules`). */
  readonly restartPolicy?: AppRestartPolicy;
}

/** The specs of the pods of this node, as the API server has them. */
export interface PodSpecs {
  /**
   * Returns the spec of a pod; undefined if it is not known. An implementation compares namespace, name and uid: it
   * never returns the spec of another pod.
   */
  of(pod: PodIdentity): PodSpec | undefined;
}

/** No specs, used without a connection to the API server. */
export const noPodSpecs: PodSpecs = { of: () => undefined };

/** The total that the pods of this node may request, from the status of the Node in the API server. */
export interface NodeAllocatable {
  /** Returns undefined while it is not known. */
  amounts(): Amounts | undefined;
}

/** No allocatable, used without a connection to the API server or without the right to read the Node. */
export const noNodeAllocatable: NodeAllocatable = { amounts: () => undefined };
