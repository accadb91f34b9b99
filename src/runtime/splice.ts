/**
 * Changes an encoded message without decoding it: nothing that we do not know is lost, and nothing else moves.
 *
 * Appending a second occurrence of a sub-message to a message would do by the book (decoders have to merge the two), and
 * some decoders do not: protobufjs 7, which grpc-js clients come with, keeps the last one alone, and with it a status that
 * has lost all but our own values. So the bytes go into the sub-message that is there.
 */

const LENGTH_DELIMITED = 2;

/**
 * The message with `addition` (encoded fields) at the end of the sub-message at `path` (field numbers from the outside
 * in): scalars given there win over earlier ones. Sub-messages that are not there are made. Throws RangeError when the
 * bytes are no message.
 */
export function spliceInto(message: Uint8Array, path: readonly number[], addition: Uint8Array): Buffer {
  const [field, ...rest] = path;
  if (field === undefined) return Buffer.concat([message, addition]);
  const last = findLast(message, field);
  const inner = last === undefined ? new Uint8Array(0) : message.subarray(last.start, last.end);
  const changed = spliceInto(inner, rest, addition);
  const head = last === undefined ? message : message.subarray(0, last.key);
  const tail = last === undefined ? new Uint8Array(0) : message.subarray(last.end);
  return Buffer.concat([head, varint(field * 8 + LENGTH_DELIMITED), varint(changed.length), changed, tail]);
}

/** Where a length-delimited field stands: its key, and its content. */
interface Place {
  readonly key: number;
  readonly start: number;
  readonly end: number;
}

function findLast(message: Uint8Array, wanted: number): Place | undefined {
  let found: Place | undefined;
  let at = 0;
  while (at < message.length) {
    const key = at;
    const tag = readVarint(message, at);
    at = tag.next;
    const field = Math.floor(tag.value / 8);
    const type = tag.value % 8;
    const { start, end } = skip(message, at, type);
    if (field === wanted && type === LENGTH_DELIMITED) found = { key, start, end };
    at = end;
  }
  return found;
}

/** The content of a field whose key ends at `at`. Groups are not part of proto3. */
function skip(message: Uint8Array, at: number, type: number): { start: number; end: number } {
  switch (type) {
    case 0:
      return within(message, at, readVarint(message, at).next);
    case 1:
      return within(message, at, at + 8);
    case LENGTH_DELIMITED: {
      const { value, next } = readVarint(message, at);
      return within(message, next, next + value);
    }
    case 5:
      return within(message, at, at + 4);
    default:
      throw new RangeError(`no protobuf message: wire type ${type} at byte ${at}`);
  }
}

function within(message: Uint8Array, start: number, end: number): { start: number; end: number } {
  if (end > message.length)
    throw new RangeError(`no protobuf message: a field ends at ${end} of ${message.length} bytes`);
  return { start, end };
}

/** Up to ten bytes (int64); values past 2^53 lose digits, which only lengths and keys may not, and those are small. */
function readVarint(message: Uint8Array, at: number): { value: number; next: number } {
  let value = 0;
  for (let index = 0; index < 10; index += 1) {
    const byte = message[at + index];
    if (byte === undefined) break;
    value += (byte % 128) * 128 ** index;
    if (byte < 128) return { value, next: at + index + 1 };
  }
  throw new RangeError(`no protobuf message: no number at byte ${at}`);
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Uint8Array.from([...bytes, rest]);
    bytes.push((rest % 128) + 128);
  }
}
