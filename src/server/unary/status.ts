import {
  Code,
  contentsOf,
  createWriter,
  delimitedKey,
  type ErrorContext,
  isServiceError,
  Reason,
  type ServiceError,
  ShimError,
  textOf,
  varintKey,
  writeMapEntry,
  writeString,
} from '../../core/index.ts';

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

export const ERROR_DOMAIN = 'cri-resize-shim.io';
const ERROR_INFO_TYPE = 'type.googleapis.com/google.rpc.ErrorInfo';

export interface ErrorInfo {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

// Field numbers, from proto/google/rpc and google/protobuf/any.proto.
const STATUS = { code: 1, message: 2, details: 3 } as const;
const ANY = { typeUrl: 1, value: 2 } as const;
const INFO = { reason: 1, domain: 2, metadata: 3 } as const;

/** Encodes a google.rpc.Status with one google.rpc.ErrorInfo, for the trailer grpc-status-details-bin. */
export function encodeStatusDetails(code: number, message: string, info: ErrorInfo): Buffer {
  const detail = writeString(createWriter(), INFO.reason, info.reason);
  writeString(detail, INFO.domain, ERROR_DOMAIN);
  for (const [key, value] of Object.entries(info.metadata)) writeMapEntry(detail, INFO.metadata, key, value);
  const status = createWriter().uint32(varintKey(STATUS.code)).int32(code);
  writeString(status, STATUS.message, message);
  writeString(status.uint32(delimitedKey(STATUS.details)).fork(), ANY.typeUrl, ERROR_INFO_TYPE);
  status.uint32(delimitedKey(ANY.value)).bytes(detail.finish()).ldelim();
  return Buffer.from(status.finish());
}

/** Decodes the ErrorInfo of such a status. Undefined if another sender wrote the trailer without one. */
export function decodeStatusDetails(details: Uint8Array): ErrorInfo | undefined {
  try {
    const [any] = contentsOf(details, STATUS.details);
    const [info] = any === undefined ? [] : contentsOf(any, ANY.value);
    if (info === undefined) return undefined;
    const textIn = (message: Uint8Array, field: number): string => textOf(contentsOf(message, field)[0]);
    const pairs = contentsOf(info, INFO.metadata).map((entry) => [textIn(entry, 1), textIn(entry, 2)] as const);
    return { reason: textIn(info, INFO.reason), metadata: Object.fromEntries(pairs) };
  } catch {
    return undefined;
  }
}
