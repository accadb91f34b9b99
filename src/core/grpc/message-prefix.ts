/** Bytes before a gRPC message: compressed flag and length (gRPC over HTTP/2, Length-Prefixed-Message). */
export const MESSAGE_PREFIX_SIZE = 5;

/** Returns the prefix of an uncompressed message of this many bytes. */
export function messagePrefix(length: number): Buffer {
  const prefix = Buffer.allocUnsafe(MESSAGE_PREFIX_SIZE);
  writeMessagePrefix(prefix, 0, length);
  return prefix;
}

/** Writes the prefix of an uncompressed message of this many bytes into `bytes` at this offset. */
export function writeMessagePrefix(bytes: Buffer, offset: number, length: number): void {
  bytes.writeUInt8(0, offset);
  bytes.writeUInt32BE(length, offset + 1);
}
