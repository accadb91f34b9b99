import { promisify } from 'node:util';
import { gunzip, inflate } from 'node:zlib';
import { bufferUsed, Code, errnoOf, messageOf, Reason, ShimError, Slots } from '../../../core/index.ts';
import { GRPC_LIMITS, type ServerBudget } from '../server-budget.ts';

/**
 * The encoding of a call's messages, moved here from `grpc-encoding`. grpc-js then hands the messages over as received,
 * and does not decompress as many at the same time as clients send.
 */
export const ENCODING_HEADER = 'x-cri-resize-shim-encoding';

const decompressors = { gzip: promisify(gunzip), deflate: promisify(inflate) };
export type Encoding = keyof typeof decompressors;

/** Whether the shim can decompress messages with this encoding. */
export const isEncoding = (name: unknown): name is Encoding => name === 'gzip' || name === 'deflate';

/** One at a time, for all servers: a decompressor may fill the whole limit. */
const slots = new Slots(1);

/** Decompresses a message if needed: with an encoding, each may be compressed. Rejects OVERLOADED if too long. */
export function decompressed(encoding: Encoding, message: Buffer, budget: ServerBudget): Promise<Buffer> {
  if (!isCompressed(encoding, message)) return Promise.resolve(message);
  if (encoding === 'gzip' && sizeByGzip(message) > GRPC_LIMITS.decompressedBytes)
    return Promise.reject(budget.tooLong());
  return slots.run(async () => {
    try {
      const content = await decompressors[encoding](message, { maxOutputLength: GRPC_LIMITS.decompressedBytes });
      bufferUsed(content.length);
      return content;
    } catch (error) {
      if (errnoOf(error) === 'ERR_BUFFER_TOO_LARGE') {
        bufferUsed(GRPC_LIMITS.decompressedBytes);
        throw budget.tooLong();
      }
      const text = `the request cannot be decompressed: ${encoding}: ${messageOf(error)}`;
      throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, text, {}, { cause: error });
    }
  });
}

/** Returns the decompressed size that gzip states, modulo 2^32 (RFC 1952 2.3.1). False sizes are refused later. */
const sizeByGzip = (message: Buffer): number => (message.length < 18 ? 0 : message.readUInt32LE(message.length - 4));

/**
 * Whether a message begins as compressed data does (RFC 1952 2.3.1, RFC 1950 2.2). No protobuf message begins with
 * gzip's first byte (wire type 7), and no CRI message with the field 15 that zlib's would be.
 */
function isCompressed(encoding: Encoding, message: Buffer): boolean {
  if (message.length < 2) return false;
  const start = message.readUInt16BE(0);
  return encoding === 'gzip' ? start === 0x1f8b : (start & 0x0f00) === 0x0800 && start % 31 === 0;
}
