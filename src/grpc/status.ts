import { Metadata } from '@grpc/grpc-js';
import { Code, type ErrorContext, Reason, ShimError, isServiceError } from '../core/errors/index.ts';
import { encodeStatusDetails } from './error-details.ts';

export { loggableError } from '../core/errors/index.ts';

/** The status of a failed call, as sent. */
export interface CallStatus {
  readonly code: number;
  readonly details: string;
  /** The trailers. */
  readonly metadata: Metadata;
}

/**
 * Maps what a handler throws to a gRPC status. A {@link ShimError} gets its reason in grpc-status-details-bin, an error
 * of the backend is sent unchanged, anything else becomes INTERNAL. Its message is left out, because it may contain
 * secrets.
 */
export function statusOf(error: unknown): CallStatus {
  if (error instanceof ShimError) return ownStatus(error.code, error.reason, error.message, error.context);
  if (isServiceError(error)) return backendStatus(error);
  return ownStatus(Code.INTERNAL, Reason.INTERNAL, 'internal error in cri-resize-shim; see its log', {});
}

/** Whether this error is an internal error of the shim, which needs investigation. */
export const isUnexpected = (error: unknown): boolean => !(error instanceof ShimError) && !isServiceError(error);

function ownStatus(code: Code, reason: Reason, message: string, context: ErrorContext): CallStatus {
  const details = wellFormed(message);
  const metadata = new Metadata();
  const about = Object.entries(context as Record<string, string | undefined>).flatMap(([key, value]) =>
    value === undefined ? [] : [[key, wellFormed(value)] as const],
  );
  const info = { reason, metadata: Object.fromEntries(about) };
  metadata.set('grpc-status-details-bin', encodeStatusDetails(code, details, info));
  return { code, details, metadata };
}

/** HTTP/2 headers of the backend's response. grpc-js reports them among the trailers of a Trailers-Only response. */
const transportHeaders = ['content-type', 'grpc-encoding', 'grpc-accept-encoding', 'accept-encoding', 'date'];

function backendStatus(error: { code: number; details: string; metadata: Metadata }): CallStatus {
  const metadata = error.metadata.clone();
  for (const header of transportHeaders) metadata.remove(header);
  return { code: error.code, details: wellFormed(error.details), metadata };
}

/** Replaces lone surrogates: grpc-js throws on them, and a protobuf string would not be UTF-8. */
const wellFormed = (text: string): string => Buffer.from(text).toString();
