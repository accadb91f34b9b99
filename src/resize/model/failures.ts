import { status } from '@grpc/grpc-js';
import { Code, Reason, ShimError, grpcErrorText, isServiceError } from '../../core/errors/index.ts';

/** KEP-1287, Deferred: the resize may fit later, when memory is freed, files are removed, reclaim has more time or other pods need less. */
const FITS_LATER: ReadonlySet<Reason> = new Set([
  Reason.MEMORY_NOT_RECLAIMABLE,
  Reason.VOLUME_IN_USE,
  Reason.RECLAIM_TIMEOUT,
  Reason.NODE_FULL,
]);
/** Failures that do not show whether the resize fits: only a resize that is already deferred survives them. */
const PASSES: ReadonlySet<Code> = new Set([Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED]);

export const fitsLater = (error: unknown): boolean => error instanceof ShimError && FITS_LATER.has(error.reason);
export const passes = (error: unknown): boolean => error instanceof ShimError && PASSES.has(error.code);

/**
 * Returns the failure of a resize as reported to its caller: with the resize's id, and backend errors under a reason of the shim.
 * An unexpected error is returned unchanged, so that it is reported as unexpected.
 */
export function failureOf(error: unknown, resize?: string): unknown {
  if (error instanceof ShimError) {
    const context = { ...error.context, ...(resize === undefined ? {} : { resize }) };
    return new ShimError(error.code, error.reason, error.message, context, { cause: error });
  }
  return isServiceError(error) ? backendFailure(error, resize) : error;
}

/** Returns reason and message of a failure, for the record of a resize. An unexpected error may quote anything, so its text is omitted. */
export function explained(failure: unknown): { readonly reason: string; readonly message: string } {
  if (failure instanceof ShimError) return { reason: failure.reason, message: failure.message };
  return { reason: Reason.INTERNAL, message: 'internal error in cri-resize-shim; see its log' };
}

const UNREACHED: ReadonlySet<number> = new Set([status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.CANCELLED]);

/** Converts an error of containerd to one with a reason of the shim. The message has its code and details. */
export function backendFailure(error: { code: number; details: string }, resize?: string): ShimError {
  const context = { found: status[error.code] ?? String(error.code), ...(resize === undefined ? {} : { resize }) };
  const message = `the backend: ${context.found}: ${grpcErrorText(error.details)}`;
  return UNREACHED.has(error.code)
    ? new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, message, context, { cause: error })
    : new ShimError(Code.INTERNAL, Reason.BACKEND_FAILED, message, context, { cause: error });
}
