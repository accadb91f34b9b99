import type { Bytes } from '../../core/quantities/numbers.ts';
import type { VolumePolicy } from '../../tmpfs/sizes.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import type { StepRecord } from './step.ts';
import type { ValueChange } from './value-changes.ts';

/** The desired values of a pod, as ResizePod asks for them. Absent values stay as they are. */
export interface DesiredPod {
  /** The pod's own limits. Absent limits are derived from the containers' (docs/resize.md). */
  readonly pod: Limits;
  /** By the container's name in the pod. */
  readonly containers: ReadonlyMap<string, Limits>;
  /** By the volume's name in the pod. */
  readonly volumes: ReadonlyMap<string, VolumePolicy>;
  /** Memory requests: no limit may be below them. */
  readonly memoryRequests?: MemoryRequests;
  /** The memory requests that earlier resizes have set. */
  readonly earlierMemoryRequests?: MemoryRequests;
}

/** Memory requests. The kernel does not know them. */
export interface MemoryRequests {
  readonly pod?: Bytes;
  /** By the container's name. */
  readonly containers: Readonly<Record<string, Bytes>>;
}

/** Returns a container's memory request. Own properties only: a name may be "constructor". */
export const memoryRequestIn = (requests: MemoryRequests | undefined, container: string): Bytes | undefined =>
  requests !== undefined && Object.hasOwn(requests.containers, container) ? requests.containers[container] : undefined;

export interface ResizeOptions {
  /** Admits and plans, but changes nothing. */
  readonly dryRun: boolean;
  /** Deadline, in milliseconds of the steady clock. A transaction that is unfinished then is rolled back. */
  readonly deadline: number;
  /** Whether to repeat the request later if its containers do not run. Otherwise the runtime stores the values. */
  readonly waits?: boolean;
  /**
   * Returns the desired values that no later request has set meanwhile. Called under the pod's lock; without it all
   * values are still desired. Throws SUPERSEDED when none is left.
   */
  readonly stillDesired?: () => DesiredPod;
  /** The request's place in the order of all requests. Without it, the request supersedes no other request. */
  readonly writer?: { readonly arrival: number; readonly text: string };
  /** Called when the resize is admitted, before its first step. Must not throw. */
  readonly onAdmitted?: () => void;
  /** Called if the resize fails after its admission, and other pods may fit because of that. Must not throw. */
  readonly onRoomFreed?: () => void;
  /** Called when the changes of the request are known, and again when its steps are known. Must not throw. */
  readonly onChanges?: (changes: readonly ValueChange[]) => void;
  /** Called if the resize fails and leaves something to roll back. Must not throw. */
  readonly onLeftUnfinished?: () => void;
  /** Called after each applied step. Must not throw. */
  readonly onStep?: (record: StepRecord) => void;
}

export interface ResizeOutcome {
  /** The applied steps. For a dry run: the planned steps, with times of 0. */
  readonly steps: readonly StepRecord[];
  readonly before: PodState;
  readonly after: PodState;
  /** The memory requests that the resize sets, with those that follow from new limits. Absent: those of the request. */
  readonly memoryRequests?: MemoryRequests | undefined;
}

/**
 * Resizes a pod under the pod's lock, all or nothing. Rejects with a ShimError: INVALID_ARGUMENT (no such container,
 * volume or value), FAILED_PRECONDITION (see its reason: MEMORY_NOT_RECLAIMABLE and VOLUME_IN_USE may fit later),
 * DEADLINE_EXCEEDED, NOT_FOUND.
 */
export type ResizePod = (sandboxId: string, desired: DesiredPod, options: ResizeOptions) => Promise<ResizeOutcome>;

/** The states that the metric of KEP-1287 counts. In steady state, Proposed = Infeasible + Completed + Canceled. */
export type ResizeState = 'Proposed' | 'InProgress' | 'Deferred' | 'Infeasible' | 'Completed' | 'Canceled';

/** The requests of a pod, in bytes and thousandths of a CPU, and those that kubelet had admitted for it before. */
export interface AdmittedRequestsOfPod {
  readonly memory: Bytes;
  readonly milliCpu: number;
  /** A text that is equal as long as kubelet has admitted no others. */
  readonly kubelet: string;
}

/** The requests that a ResizePod has set. */
export interface AdmittedRecord extends AdmittedRequestsOfPod {
  /** Only while the transaction is open: the requests to restore if it is rolled back; null if there are none. */
  readonly before?: AdmittedRequestsOfPod | null;
}
