/**
 * Changes an encoded message without decoding it, so that unknown fields and all other bytes stay as they are.
 *
 * Appending a second occurrence of a sub-message is valid protobuf, since decoders must merge the two. But protobufjs 7, which
 * grpc-js clients use, only keeps the last one: the status would lose everything except our own values. Therefore the addition
 * goes into the existing sub-message.
 */
import { createWriter, delimitedKey, readFields } from '../core/protobuf/index.ts';

/**
 * Returns the message with `addition` (encoded fields) at the end of the sub-message at `path` (field numbers, outermost
 * first). Scalars in the addition override earlier ones. Creates sub-messages that do not exist. Throws RangeError if the bytes
 * are not a message.
 */
export function spliceInto(message: Uint8Array, path: readonly number[], addition: Uint8Array): Buffer {
  const [field, ...rest] = path;
  if (field === undefined) return Buffer.concat([message, addition]);
  const last = findLast(message, field);
  const inner = last === undefined ? new Uint8Array(0) : message.subarray(last.start, last.end);
  const changed = spliceInto(inner, rest, addition);
  const head = last === undefined ? message : message.subarray(0, last.keyStart);
  const tail = last === undefined ? new Uint8Array(0) : message.subarray(last.end);
  const header = createWriter().uint32(delimitedKey(field)).uint32(changed.length).finish();
  return Buffer.concat([head, header, changed, tail]);
}

/** The position of a length-delimited field: its key, and its content. */
interface Place {
  readonly keyStart: number;
  readonly start: number;
  readonly end: number;
}

function findLast(message: Uint8Array, field: number): Place | undefined {
  let found: Place | undefined;
  const wanted = delimitedKey(field);
  readFields(message, (key, reader, keyStart) => {
    if (key !== wanted) return false;
    const length = reader.uint32();
    found = { keyStart, start: reader.pos, end: reader.pos + length };
    reader.skip(length);
    return true;
  });
  return found;
}
