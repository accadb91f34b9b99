import { status } from '@grpc/grpc-js';
import { Code, Reason, ShimError, grpcErrorText } from '../../core/errors/index.ts';
import { isServiceError } from '../../runtime/index.ts';

/** What may fit later: memory that is freed, files that are removed, reclaim that had too little time. */
const FITS_LATER: ReadonlySet<Reason> = new Set([
  Reason.MEMORY_NOT_RECLAIMABLE,
  Reason.VOLUME_IN_USE,
  Reason.RECLAIM_TIMEOUT,
]);
/** What says nothing about whether it fits: only a resize that has been deferred already outlasts it. */
const PASSES: ReadonlySet<Code> = new Set([Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED]);

export const fitsLater = (error: unknown): boolean => error instanceof ShimError && FITS_LATER.has(error.reason);
export const passes = (error: unknown): boolean => error instanceof ShimError && PASSES.has(error.code);

/**
 * What has ended a resize, as its caller is told: with the resize's id, and the backend's errors under a reason of our own.
 * Anything unexpected stays as it is: whoever reports it must see that it is.
 */
export function failureOf(error: unknown, resize?: string): unknown {
  if (error instanceof ShimError) {
    const context = { ...error.context, ...(resize === undefined ? {} : { resize }) };
    return new ShimError(error.code, error.reason, error.message, context, { cause: error });
  }
  return isServiceError(error) ? backendFailure(error, resize) : error;
}

/** Reason and message of a failure, as a resize keeps them. What is unexpected may quote anything: it is not kept. */
export function explained(failure: unknown): { readonly reason: string; readonly message: string } {
  if (failure instanceof ShimError) return { reason: failure.reason, message: failure.message };
  return { reason: Reason.INTERNAL, message: 'internal error in cri-resize-shim; see its log' };
}

const UNREACHED: ReadonlySet<number> = new Set([status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.CANCELLED]);

/** An error of containerd under a reason of the shim's own; its code and words are in the message. */
export function backendFailure(error: { code: number; details: string }, resize?: string): ShimError {
  const context = { found: status[error.code] ?? String(error.code), ...(resize === undefined ? {} : { resize }) };
  const message = `the backend: ${context.found}: ${grpcErrorText(error.details)}`;
  return UNREACHED.has(error.code)
    ? new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, message, context, { cause: error })
    : new ShimError(Code.INTERNAL, Reason.BACKEND_FAILED, message, context, { cause: error });
}
