import { MESSAGE_PREFIX_SIZE } from '../../core/index.ts';
import { HeaderField, HpackDecoder, StaticIndex, staticField } from '../../http2/index.ts';

/**
 * Returns a header block that ends a call: trailers, or Trailers-Only if no headers were sent (gRPC over HTTP/2,
 * Responses). It uses no dynamic table.
 * @param answered whether headers were sent already
 */
export function statusBlock(code: number, message: string, answered: boolean): Buffer {
  const fields = [
    new HeaderField('grpc-status', String(code), 0, 0, false),
    new HeaderField('grpc-message', percentEncode(message), 0, 0, false),
  ];
  const ok = staticField(StaticIndex.STATUS_200);
  if (!answered && ok !== undefined)
    fields.unshift(ok, new HeaderField('content-type', 'application/grpc', StaticIndex.CONTENT_TYPE, 0, false));
  return Buffer.concat(fields.map((field) => field.wire));
}

/**
 * Encodes a Status-Message (gRPC over HTTP/2, Responses): UTF-8, percent-encoded except printable ASCII without `%`.
 */
function percentEncode(message: string): string {
  return Buffer.from(message, 'utf8')
    .toString('latin1')
    .replace(/[^ -$&-~]/g, (char: string) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);
}

/**
 * Reads the grpc-status from a server's header block that uses no dynamic table.
 * @returns undefined if there is none or the block is malformed, which is for its receiver to report
 */
export function statusOf(block: Buffer): number | undefined {
  try {
    const field = new HpackDecoder(0, block.length * 64).decode(block).find(({ name }) => name === 'grpc-status');
    return field === undefined ? undefined : Number(field.value);
  } catch {
    return undefined;
  }
}

/** Milliseconds of each unit of a grpc-timeout (gRPC over HTTP/2, Timeout). */
const UNITS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 };

/** Returns the milliseconds of a grpc-timeout; Infinity if it is empty or malformed. */
export function millisecondsOf(timeout: string): number {
  const unit = UNITS[timeout.at(-1) ?? ''];
  const value = timeout.slice(0, -1);
  return unit === undefined || !/^\d{1,8}$/.test(value) ? Infinity : Number(value) * unit;
}

/** Returns the bytes of the message that begins here, with its prefix; 0 if the prefix is not complete. */
export const messageSize = (start: Buffer): number =>
  start.length < MESSAGE_PREFIX_SIZE ? 0 : MESSAGE_PREFIX_SIZE + start.readUInt32BE(1);

const literal = (name: string, value: string, nameIndex = 0): Buffer =>
  new HeaderField(name, value, nameIndex, 0, false).wire;

/** The first headers of every answer: those of a grpc-js server, which answers all other handled calls. */
const RESPONSE = Buffer.concat([
  staticField(StaticIndex.STATUS_200)?.wire ?? literal(':status', '200'),
  literal('content-type', 'application/grpc+proto', StaticIndex.CONTENT_TYPE),
]);

/** The header block of a response with a message. */
export const RESPONSE_HEADERS = Buffer.concat([
  RESPONSE,
  literal('grpc-accept-encoding', 'identity,deflate,gzip'),
  literal('grpc-encoding', 'identity'),
]);

/** The trailers of a call that succeeds. */
export const OK_TRAILERS = Buffer.concat([literal('grpc-status', '0'), literal('grpc-message', 'OK')]);

/** Returns the header block that ends a call without a message (gRPC over HTTP/2, Trailers-Only). */
export function failureBlock(
  code: number,
  message: string,
  trailers: readonly (readonly [name: string, value: string])[],
): Buffer {
  return Buffer.concat([
    RESPONSE,
    literal('grpc-status', String(code)),
    literal('grpc-message', percentEncode(message)),
    ...trailers.map(([name, value]) => literal(name, value)),
  ]);
}
