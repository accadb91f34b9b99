import { HeaderField, HpackDecoder, staticField } from '../http2/index.ts';

/** gRPC's UNAVAILABLE: what a client sees when a server is gone, and knows to try again on. */
export const UNAVAILABLE = 14;
const CONTENT_TYPE = 31;

/** The 5 octets before a gRPC message: compressed or not, and its length (gRPC over HTTP/2, Length-Prefixed-Message). */
export const MESSAGE_PREFIX_SIZE = 5;

/** The prefix of an uncompressed message of this many bytes. */
export function messagePrefix(length: number): Buffer {
  const prefix = Buffer.alloc(MESSAGE_PREFIX_SIZE);
  prefix.writeUInt32BE(length, 1);
  return prefix;
}

/**
 * A header block that ends a call with UNAVAILABLE: trailers, or the whole response where no headers were sent. It uses no dynamic table.
 * @param answered headers were sent already
 */
export function unavailableBlock(message: string, answered: boolean): Buffer {
  const fields = [
    new HeaderField('grpc-status', String(UNAVAILABLE), 0, 0, false),
    new HeaderField('grpc-message', percentEncode(message), 0, 0, false),
  ];
  const ok = staticField(8);
  if (!answered && ok !== undefined)
    fields.unshift(ok, new HeaderField('content-type', 'application/grpc', CONTENT_TYPE, 0, false));
  return Buffer.concat(fields.map((field) => field.wire));
}

/** gRPC over HTTP/2, Status-Message: UTF-8 with everything but printable ASCII, and `%`, percent-encoded. */
function percentEncode(message: string): string {
  return Buffer.from(message, 'utf8')
    .toString('latin1')
    .replace(/[^ -$&-~]/g, (char: string) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);
}

/**
 * The grpc-status in a server's header block that uses no dynamic table.
 * @returns undefined where there is none, or the block is broken: its receiver will say so
 */
export function statusOf(block: Buffer): number | undefined {
  try {
    const field = new HpackDecoder(0, block.length * 64).decode(block).find(({ name }) => name === 'grpc-status');
    return field === undefined ? undefined : Number(field.value);
  } catch {
    return undefined;
  }
}
