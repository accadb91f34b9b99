import { Code, type ErrorContext, Reason, type ServiceError, ShimError, isServiceError } from '../core/errors/index.ts';
import { encodeStatusDetails } from './error-details.ts';

export { loggableError } from '../core/errors/index.ts';

/** A trailer with its value; a name ending in `-bin` has bytes, in base64. */
export type Trailer = readonly [name: string, value: string];

/** The status of a failed call, as sent. */
export interface CallStatus {
  readonly code: number;
  readonly details: string;
  /** In addition to grpc-status and grpc-message. A name may be repeated. */
  readonly trailers: readonly Trailer[];
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
  const about = Object.entries(context as Record<string, string | undefined>).flatMap(([key, value]) =>
    value === undefined ? [] : [[key, wellFormed(value)] as const],
  );
  const info = { reason, metadata: Object.fromEntries(about) };
  const encoded = encodeStatusDetails(code, details, info).toString('base64');
  return { code, details, trailers: [['grpc-status-details-bin', encoded]] };
}

/** HTTP/2 headers of the backend's response. grpc-js reports them among the trailers of a Trailers-Only response. */
const transportHeaders: ReadonlySet<string> = new Set([
  'content-type',
  'grpc-encoding',
  'grpc-accept-encoding',
  'accept-encoding',
  'date',
]);

function backendStatus({ code, details, metadata }: ServiceError): CallStatus {
  const trailers = metadata.fields().filter(([name]) => !transportHeaders.has(name));
  return { code, details: wellFormed(details), trailers };
}

/** Replaces lone surrogates: grpc-js throws on them, and a protobuf string would not be UTF-8. */
const wellFormed = (text: string): string => Buffer.from(text).toString();
