import { grpcErrorText, Reason, ShimError } from '../../core/errors.ts';
import { Code, grpcCodeName, isServiceError } from '../../core/grpc.ts';
import { isStarting } from '../../runtime/backend-errors.ts';
import type { PodDescription } from '../../runtime/description.ts';
import { podName } from '../pods/names.ts';

/**
 * KEP-1287, Deferred: the resize may fit later, when memory is freed, files are removed, reclaim has more time, other
 * pods request less, or the pod has other containers.
 */
const FITS_LATER: ReadonlySet<Reason> = new Set([
  Reason.MEMORY_NOT_RECLAIMABLE,
  Reason.VOLUME_IN_USE,
  Reason.RECLAIM_TIMEOUT,
  Reason.NODE_FULL,
  Reason.SANDBOX_ENDED,
  Reason.NO_RUNNING_CONTAINER,
]);
/**
 * Failures that do not show whether the resize fits. A resize that is already deferred stays deferred. The pod had its
 * containers when the resize was deferred. One may end during an attempt, and a new sandbox has no containers until
 * image pulls and init containers are done. The journal's disk may be temporarily full.
 */
const PASSES: ReadonlySet<Code | Reason> = new Set<Code | Reason>([
  Code.UNAVAILABLE,
  Code.DEADLINE_EXCEEDED,
  Reason.UNKNOWN_CONTAINER,
  Reason.CGROUP_UNAVAILABLE,
  Reason.JOURNAL_UNAVAILABLE,
]);

/** KEP-6030: a volume does not shrink below what it stores. */
export const isVolumeInUse = (error: unknown): boolean =>
  error instanceof ShimError && error.reason === Reason.VOLUME_IN_USE;

/** Whether a resize that failed with this error may fit later, so that it is Deferred. */
export const fitsLater = (error: unknown): boolean => error instanceof ShimError && FITS_LATER.has(error.reason);
/** Whether a resize that is already deferred stays so after this error, which does not show whether it fits. */
export const passes = (error: unknown): boolean =>
  error instanceof ShimError && (PASSES.has(error.code) || PASSES.has(error.reason)) && !isMisspelled(error);

/**
 * Whether a resize waits for the recovery of its pod: an earlier one could not be rolled back, or this one was not,
 * because the runtime has not answered an update. Does not show whether the resize fits.
 */
export const waitsForRecovery = (error: unknown): boolean =>
  error instanceof ShimError && error.reason === Reason.UNDO_FAILED;

/** Whether a complete source lacks this container name: kubelet does not create the container then. */
const isMisspelled = ({ reason, context }: ShimError): boolean =>
  reason === Reason.UNKNOWN_CONTAINER && context.source !== undefined;

/**
 * Returns the failure of a resize as reported to its caller: with the resize's id, and backend errors under a reason of
 * the shim. An unexpected error is returned unchanged, so that it is reported as unexpected.
 */
export function failureOf(error: unknown, resize?: string): unknown {
  if (error instanceof ShimError) {
    const context = { ...error.context, ...(resize === undefined ? {} : { resize }) };
    return new ShimError(error.code, error.reason, error.message, context, { cause: error });
  }
  return isServiceError(error) ? backendFailure(error, resize) : error;
}

/** Returns the error of an operation that has not begun because its deadline has passed. */
export function lateError(pod: PodDescription, what: string): ShimError {
  const message = `pod ${podName(pod)}: deadline exceeded before: ${what}`;
  return new ShimError(Code.DEADLINE_EXCEEDED, Reason.DEADLINE, message, { pod: pod.metadata.uid });
}

/** Why something failed or has to wait: a reason code, and a text for people. */
export interface Explanation {
  readonly reason: string;
  readonly message: string;
}

/** Returns reason and message of a failure for a resize record. Omits unexpected errors' text: it may be unsafe. */
export function explained(failure: unknown): Explanation {
  if (failure instanceof ShimError) return { reason: failure.reason, message: failure.message };
  return { reason: Reason.INTERNAL, message: 'internal error in cri-resize-shim; see its log' };
}

const UNREACHED: ReadonlySet<number> = new Set([Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED]);

/** Converts an error of containerd to one with a reason of the shim. The message has its code and details. */
export function backendFailure(error: { code: number; details: string }, resize?: string): ShimError {
  const context = { found: grpcCodeName(error.code), ...(resize === undefined ? {} : { resize }) };
  const message = `the backend: ${context.found}: ${grpcErrorText(error.details)}`;
  return UNREACHED.has(error.code) || isStarting(error)
    ? new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, message, context, { cause: error })
    : new ShimError(Code.INTERNAL, Reason.BACKEND_FAILED, message, context, { cause: error });
}

/** A step was skipped because the pod's present state does not allow it. The other steps continue. */
export class StepSkipped extends Error {
  override readonly name = 'StepSkipped';
}
