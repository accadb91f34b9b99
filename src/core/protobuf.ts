/**
 * Reads and writes single protobuf fields. For messages on hot paths, where decoding the whole message costs more than
 * all other work, and for messages of a few fields, which need no .proto parser at startup.
 *
 * A field on the wire is a key (field number and wire type) and a value
 * (https://protobuf.dev/programming-guides/encoding).
 */
import protobuf from 'protobufjs/light.js';
import { messageOf } from './errors.ts';

export type FieldReader = protobuf.Reader;
export type FieldWriter = protobuf.Writer;

const VARINT = 0;
const FIXED_64 = 1;
const LENGTH_DELIMITED = 2;
const FIXED_32 = 5;

/** The key of an integer, boolean or enum field. */
export const varintKey = (field: number): number => (field << 3) | VARINT;
/** The key of a string, bytes, map or sub-message field. */
export const delimitedKey = (field: number): number => (field << 3) | LENGTH_DELIMITED;

/**
 * Receives a field whose key has been read, and the position of its key. Returns true after reading its value, or false
 * without reading anything: the value is then skipped.
 */
export type TakeField = (key: number, reader: FieldReader, keyStart: number) => boolean;

/** Reads the fields of a message in order. Throws RangeError if the bytes are not a protobuf message. */
export function readFields(message: Uint8Array, take: TakeField): void {
  const reader = protobuf.Reader.create(message);
  try {
    readUpTo(reader, reader.len, take);
  } catch (error) {
    // protobufjs throws plain errors for varints of more than ten bytes.
    if (error instanceof RangeError) throw error;
    throw new RangeError(`not a protobuf message: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Reads the fields of a sub-message whose key has just been read. Returns the position of its first byte. Throws
 * RangeError as {@link readFields} does.
 */
export function readSubMessage(reader: FieldReader, take: TakeField): number {
  const length = reader.uint32();
  const start = reader.pos;
  readUpTo(reader, start + length, take);
  return start;
}

/** The most bytes of a varint. */
const VARINT_BYTES = 10;

/**
 * Reads an int64 as a number; values beyond 2^53 are inexact. protobufjs makes several objects for each int64. Throws
 * RangeError if there is none.
 */
export function readInt64(reader: FieldReader): number {
  let low = 0;
  let high = 0;
  for (let index = 0; index < VARINT_BYTES; index += 1) {
    if (reader.pos >= reader.len) break;
    const octet = reader.buf[reader.pos++] ?? 0;
    const bits = octet & 0x7f;
    if (index < 4) low |= bits << (7 * index);
    else if (index > 4) high |= bits << (7 * index - 32);
    else {
      low |= bits << 28;
      high = bits >> 4;
    }
    if (octet < 0x80) return high * 2 ** 32 + (low >>> 0);
  }
  throw new RangeError(`not a protobuf message: a varint does not end at byte ${reader.pos}`);
}

/**
 * Writes an int64, of at most 53 bits, as a varint of up to ten bytes. Returns the position behind it.
 * @param into has to have room for it
 */
export function writeInt64(into: Uint8Array, from: number, value: number): number {
  let at = from;
  let low = value >>> 0;
  let high = Math.floor(value / 2 ** 32) >>> 0;
  for (; high > 0 || low >= 0x80; at += 1) {
    into[at] = (low & 0x7f) | 0x80;
    low = ((low >>> 7) | (high << 25)) >>> 0;
    high >>>= 7;
  }
  into[at] = low;
  return at + 1;
}

function readUpTo(reader: FieldReader, end: number, take: TakeField): void {
  while (reader.pos < end) {
    const keyStart = reader.pos;
    const key = reader.uint32();
    if (!take(key, reader, keyStart)) skipValue(reader, key & 7);
  }
  if (reader.pos > end) throw new RangeError(`not a protobuf message: a field ends at byte ${reader.pos}, past ${end}`);
}

/** Skips a value. Rejects groups (wire types 3 and 4), which are not part of proto3. */
function skipValue(reader: FieldReader, wireType: number): void {
  switch (wireType) {
    case VARINT:
    case FIXED_64:
    case LENGTH_DELIMITED:
    case FIXED_32:
      reader.skipType(wireType);
      return;
    default:
      throw new RangeError(`not a protobuf message: wire type ${wireType} at byte ${reader.pos}`);
  }
}

/** Returns the content of each occurrence of a length-delimited field. Throws RangeError as {@link readFields} does. */
export function contentsOf(message: Uint8Array, field: number): readonly Uint8Array[] {
  const contents: Uint8Array[] = [];
  readFields(message, (key, reader) => {
    if (key !== delimitedKey(field)) return false;
    contents.push(reader.bytes());
    return true;
  });
  return contents;
}

/** Decodes the content of a string field; the empty string, proto3's default, if the field is absent. */
export const textOf = (content: Uint8Array | undefined): string => Buffer.from(content ?? []).toString('utf8');

/**
 * Returns a function that returns the type of a message by its name.
 * @param json the .proto file, parsed in advance (test/docs/parsed-protos.test.ts): parsing takes longer than all
 * decoding
 */
export function messageTypes(json: protobuf.INamespace, packageName: string): (name: string) => protobuf.Type {
  const types = new Map<string, protobuf.Type>();
  let root: protobuf.Root | undefined;
  return (name) => {
    let type = types.get(name);
    if (type === undefined) {
      root ??= protobuf.Root.fromJSON(json);
      type = root.lookupType(`${packageName}.${name}`);
      types.set(name, type);
    }
    return type;
  };
}

/** Encodes a message that is a plain object. */
export function encodeMessage(type: protobuf.Type, object: object): Buffer {
  const bytes = type.encode(type.fromObject(object)).finish();
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Creates a writer for the fields of a message. */
export const createWriter = (): FieldWriter => protobuf.Writer.create();

/** Writes a string field. */
export const writeString = (writer: FieldWriter, field: number, value: string): FieldWriter =>
  writer.uint32(delimitedKey(field)).string(value);

/** Writes one entry of a map<string, string> field. */
export function writeMapEntry(writer: FieldWriter, field: number, key: string, value: string): FieldWriter {
  const entry = writer.uint32(delimitedKey(field)).fork();
  return writeString(writeString(entry, 1, key), 2, value).ldelim();
}
