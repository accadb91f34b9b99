import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { StepRecord } from './step.ts';
import type { Limits, PodState } from '../../sandbox/index.ts';

/** A whole pod's resize, as an agent asks for it. What is absent stays as it is. */
export interface DesiredPod {
  /** The pod's own limits; without them they follow the containers' (docs/resize.md). */
  readonly pod: Limits;
  /** By the container's name in the pod. */
  readonly containers: ReadonlyMap<string, Limits>;
  /** By the volume's name in the pod. */
  readonly volumes: ReadonlyMap<string, VolumePolicy>;
  /** Those that it names: no limit may be below. */
  readonly memoryRequests?: MemoryRequests;
}

/** Requests of memory: the kernel does not know them. */
export interface MemoryRequests {
  readonly pod?: Bytes;
  /** By the container's name. */
  readonly containers: Readonly<Record<string, Bytes>>;
}

export interface ResizeOptions {
  /** Admits and plans, and changes nothing. */
  readonly dryRun: boolean;
  /** When it has to have ended, in milliseconds since the epoch: what is not done by then is undone. */
  readonly deadline: number;
  /** Told of each step when it has been carried out. Must not throw. */
  readonly onStep?: (record: StepRecord) => void;
}

export interface ResizeOutcome {
  /** As they were carried out; for a dry run as they would be, with times of 0. */
  readonly steps: readonly StepRecord[];
  readonly before: PodState;
  readonly after: PodState;
}

/**
 * Carries out a whole pod's resize under the pod's lock, or nothing of it. Rejects with a ShimError: INVALID_ARGUMENT (no such
 * container, volume or value), FAILED_PRECONDITION (see its reason: MEMORY_NOT_RECLAIMABLE and VOLUME_IN_USE may fit later),
 * DEADLINE_EXCEEDED, NOT_FOUND.
 */
export type ResizePod = (sandboxId: string, desired: DesiredPod, options: ResizeOptions) => Promise<ResizeOutcome>;
