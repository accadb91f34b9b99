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
  const place = placesOf(message, field).at(-1);
  if (place !== undefined) return spliceIntoPlaces(message, rest, [{ place, addition }]);
  const made = spliceInto(new Uint8Array(0), rest, addition);
  const header = createWriter().uint32(delimitedKey(field)).uint32(made.length).finish();
  return Buffer.concat([message, header, made]);
}

/** The position of a length-delimited field in a message: its length, which follows its key, and its content. */
export interface Place {
  readonly lengthStart: number;
  readonly start: number;
  readonly end: number;
}

/** Returns the positions of all occurrences of a length-delimited field. Throws RangeError if the bytes are not a message. */
export function placesOf(message: Uint8Array, field: number): readonly Place[] {
  const places: Place[] = [];
  const wanted = delimitedKey(field);
  readFields(message, (key, reader) => {
    if (key !== wanted) return false;
    const lengthStart = reader.pos;
    const length = reader.uint32();
    places.push({ lengthStart, start: reader.pos, end: reader.pos + length });
    reader.skip(length);
    return true;
  });
  return places;
}

/**
 * Returns the message with each addition spliced into the sub-message at its position, as {@link spliceInto} does with `path`.
 * Positions are in the order of the message.
 */
export function spliceIntoPlaces(
  message: Uint8Array,
  path: readonly number[],
  additions: readonly { readonly place: Place; readonly addition: Uint8Array }[],
): Buffer {
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (const { place, addition } of additions) {
    const changed = spliceInto(message.subarray(place.start, place.end), path, addition);
    const length = createWriter().uint32(changed.length).finish();
    parts.push(message.subarray(copied, place.lengthStart), length, changed);
    copied = place.end;
  }
  return Buffer.concat([...parts, message.subarray(copied)]);
}
