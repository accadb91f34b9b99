import { Metadata } from '@grpc/grpc-js';
import { Code, type ErrorContext, Reason, ShimError } from '../core/errors/index.ts';
import { isServiceError } from '../runtime/index.ts';
import { encodeStatusDetails } from './error-details.ts';

export { loggableError } from '../core/errors/index.ts';

/** How a call that failed ends, as it goes on the wire. */
export interface CallStatus {
  readonly code: number;
  readonly details: string;
  /** The trailers. */
  readonly metadata: Metadata;
}

/**
 * The one place where what a handler has thrown becomes a gRPC status: a {@link ShimError} with its reason in
 * grpc-status-details-bin, an error of the backend as it came, anything else INTERNAL, without its message: we do not
 * know what is in there.
 */
export function statusOf(error: unknown): CallStatus {
  if (error instanceof ShimError) return ownStatus(error.code, error.reason, error.message, error.context);
  if (isServiceError(error)) return backendStatus(error);
  return ownStatus(Code.INTERNAL, Reason.INTERNAL, 'internal error of cri-resize-shim; its log says more', {});
}

/** Whether this error is a fault of the shim itself, that has to be looked into. */
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

/** Headers of the backend's HTTP/2 response, which grpc-js hands out among the trailers of a call that failed at once. */
const transportHeaders = ['content-type', 'grpc-encoding', 'grpc-accept-encoding', 'accept-encoding', 'date'];

function backendStatus(error: { code: number; details: string; metadata: Metadata }): CallStatus {
  const metadata = error.metadata.clone();
  for (const header of transportHeaders) metadata.remove(header);
  return { code: error.code, details: wellFormed(error.details), metadata };
}

/** Half a surrogate pair cannot go on the wire: grpc-js throws, and protobuf's text would not be UTF-8. */
const wellFormed = (text: string): string => Buffer.from(text).toString();
