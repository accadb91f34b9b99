/** The outcome of a call: its status, its trailers, and the error if it failed. */
import { Code, grpcCodeName, Metadata, type ServiceError } from '../../core/grpc.ts';
import type { HeaderField } from '../../http2/hpack/field.ts';

/** The error of a failed call. */
export interface CallFailure extends ServiceError {
  readonly hasNoAnswer: boolean;
  readonly isUnsent: boolean;
}

/** Returns the error of a failed call. */
export function failure(outcome: Outcome): CallFailure {
  const { code, details, metadata = new Metadata(), hasNoAnswer = false, isUnsent = false } = outcome;
  const error = new Error(`${code} ${grpcCodeName(code)}: ${details}`);
  return Object.assign(error, { code, details, metadata, hasNoAnswer, isUnsent });
}

/** Whether the client has ended a call itself, with a status that a server could have sent, too. */
export const hasNoAnswer = (error: Error): boolean => 'hasNoAnswer' in error && error.hasNoAnswer === true;

/** Whether a call has failed before the server has processed any of it. */
export const isUnsent = (error: Error): boolean => 'isUnsent' in error && error.isUnsent === true;

/** The outcome of a call. */
export interface Outcome {
  /** A gRPC status code. */
  readonly code: number;
  readonly details: string;
  /** The trailers, which are read only for failed calls. */
  readonly metadata?: Metadata;
  /** Whether the client itself has ended the call, without an answer of the server about its effect. */
  readonly hasNoAnswer?: boolean;
  /** Whether the server has not received or not processed the call, so that it has no effect. */
  readonly isUnsent?: boolean;
}

/** The outcome of a call whose backend goes away midway, in grpc-go's words, which containerd's tests match. */
export const LOST: Outcome = { code: Code.UNAVAILABLE, details: 'error reading from server: EOF' };

/** The outcome of a call that the server refused before processing any of it. */
export const REFUSED: Outcome = { code: Code.UNAVAILABLE, details: 'Stream refused by server', isUnsent: true };

/** Returns the outcome of a call whose response violates the rules of gRPC or HTTP/2. */
export const malformed = (details: string): Outcome => ({
  code: Code.INTERNAL,
  details: `the backend sent a malformed response: ${details}`,
});

/** Codes for an HTTP status without a gRPC status (http-grpc-status-mapping.md of grpc). All others mean UNKNOWN. */
const HTTP_CODES: Readonly<Record<number, number>> = {
  400: Code.INTERNAL,
  401: Code.UNAUTHENTICATED,
  403: Code.PERMISSION_DENIED,
  404: Code.UNIMPLEMENTED,
  429: Code.UNAVAILABLE,
  502: Code.UNAVAILABLE,
  503: Code.UNAVAILABLE,
  504: Code.UNAVAILABLE,
};

/** Returns how a call ends that has an HTTP status and no gRPC status. */
export const httpOutcome = (httpStatus: number): Outcome => ({
  code: HTTP_CODES[httpStatus] ?? Code.UNKNOWN,
  details: `Received HTTP status code ${httpStatus}`,
});

/** Outcomes for the error codes of RST_STREAM ("Errors" in PROTOCOL-HTTP2.md of grpc). All others mean INTERNAL. */
const RESETS: Readonly<Record<number, Outcome>> = {
  // A stream with a response was processed by the server. Any other call is sent again.
  7: { ...REFUSED, isUnsent: false },
  8: { code: Code.CANCELLED, details: 'Call cancelled' },
  11: { code: Code.RESOURCE_EXHAUSTED, details: 'Bandwidth exhausted or memory limit exceeded' },
  12: { code: Code.PERMISSION_DENIED, details: 'Protocol not secure enough' },
};

/** @param errorCode of RST_STREAM */
export const resetOutcome = (errorCode: number): Outcome =>
  RESETS[errorCode] ?? { code: Code.INTERNAL, details: `Received RST_STREAM with code ${errorCode}` };

/** Returns the first value of a field. */
export const valueOf = (fields: readonly HeaderField[], name: string): string | undefined =>
  fields.find((field) => field.name === name)?.value;

/** Returns how a call ends by its trailers. */
export function trailersOutcome(fields: readonly HeaderField[], httpStatus: number): Outcome {
  const code = valueOf(fields, 'grpc-status');
  if (code === '0') return { code: Code.OK, details: '' };
  const metadata = metadataOf(fields);
  if (code === undefined) return { ...httpOutcome(httpStatus), metadata };
  const message = valueOf(fields, 'grpc-message');
  const details = message === undefined ? '' : percentDecoded(message);
  if (/^[0-9]{1,9}$/.test(code)) return { code: Number(code), details, metadata };
  return { code: Code.UNKNOWN, details: details || 'the backend ended the call with an invalid status', metadata };
}

/**
 * Fields that are not metadata: the status and its message, fields of a connection (RFC 9113 8.2.2), and the length of
 * a response, which another response may replace. node:http2 sends no fields of a connection.
 */
const DROPPED = new Set([
  'grpc-status',
  'grpc-message',
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
  'te',
  'content-length',
]);

/** Fields with one value each in HTTP. node:http2 sends no second one, and reads only the first. */
const SINGLE = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
  'authorization',
  'content-encoding',
  'content-language',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'host',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'if-unmodified-since',
  'last-modified',
  'location',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'retry-after',
  'tk',
  'upgrade-insecure-requests',
  'user-agent',
  'x-content-type-options',
]);

/** Returns the trailers of a failed call that can be forwarded with its status: all but status and message. */
export function metadataOf(fields: readonly HeaderField[]): Metadata {
  const metadata = new Metadata();
  const seen = new Set<string>();
  for (const { name, value } of fields) {
    if (name.startsWith(':') || DROPPED.has(name)) continue;
    if (SINGLE.has(name) && seen.has(name)) continue;
    // Fields that gRPC does not allow are left out.
    if (metadata.add(name, value)) seen.add(name);
  }
  return metadata;
}

/**
 * Decodes a `grpc-message` (PROTOCOL-HTTP2.md of grpc): `%XX` is one octet of UTF-8. Everything that is no such escape
 * stays as it is, because a message that cannot be decoded is better than none.
 * @param text one character for each octet
 */
export function percentDecoded(text: string): string {
  if (!text.includes('%') && /^[ -~]*$/.test(text)) return text;
  const octets = text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Buffer.from(octets, 'latin1').toString();
}
