/**
 * Reads and writes single protobuf fields. For messages on hot paths, where decoding the whole message costs more than
 * all other work, and for messages of a few fields, which need no .proto parser at startup.
 *
 * A field on the wire is a key (field number and wire type) and a value
 * (https://protobuf.dev/programming-guides/encoding).
 */
import protobuf from 'protobufjs/light.js';

export type FieldWriter = protobuf.Writer;

const VARINT = 0;
const FIXED_64 = 1;
const LENGTH_DELIMITED = 2;
const FIXED_32 = 5;

/** The key of an integer, boolean or enum field. */
export const varintKey = (field: number): number => (field << 3) | VARINT;
/** The key of a string, bytes, map or sub-message field. */
export const delimitedKey = (field: number): number => (field << 3) | LENGTH_DELIMITED;

/** The most bytes of a varint. */
const VARINT_BYTES = 10;

/**
 * Walks through the fields of an encoded message, in order. Makes no objects for fields, and calls nothing back: a
 * container status is read more often than any other message.
 */
export class Fields {
  /** The key of the present field. */
  key = 0;
  keyStart = 0;
  /** Where the length of a length-delimited field begins. */
  lengthStart = 0;
  /** Where the content of a length-delimited field begins, and the value of any other. */
  start = 0;
  /** The end of the present field; at first the beginning of the message. */
  end: number;

  /**
   * @param bytes that contain the message
   * @param from its position in them
   */
  constructor(
    readonly bytes: Uint8Array,
    from = 0,
    private readonly limit = bytes.length,
  ) {
    this.end = from;
  }

  /** Moves to the next field. Returns false behind the last one. Throws RangeError if the bytes are no message. */
  next(): boolean {
    this.keyStart = this.end;
    if (this.keyStart >= this.limit) return false;
    this.start = this.keyStart;
    this.key = this.#varint();
    switch (this.key & 7) {
      case VARINT:
        this.end = this.#varintEnd(this.start);
        break;
      case FIXED_64:
        this.end = this.start + 8;
        break;
      case LENGTH_DELIMITED:
        this.lengthStart = this.start;
        this.end = this.#varint() + this.start;
        break;
      case FIXED_32:
        this.end = this.start + 4;
        break;
      // Groups are not part of proto3.
      default:
        throw new RangeError(`not a protobuf message: wire type ${this.key & 7} at byte ${this.start}`);
    }
    if (this.end <= this.limit) return true;
    throw new RangeError(`not a protobuf message: a field ends at byte ${this.end}, past ${this.limit}`);
  }

  /** Returns the fields of the present field, a sub-message. */
  inner(): Fields {
    return new Fields(this.bytes, this.start, this.end);
  }

  /** Returns the content of the present field, a length-delimited one. */
  content(): Uint8Array {
    return this.bytes.subarray(this.start, this.end);
  }

  /** Returns the present field, an integer, as a number. Values beyond 2^53 are inexact. */
  integer(): number {
    let low = 0;
    let high = 0;
    for (let index = 0; index < this.end - this.start; index += 1) {
      const bits = (this.bytes[this.start + index] ?? 0) & 0x7f;
      if (index < 4) low |= bits << (7 * index);
      else if (index > 4) high |= bits << (7 * index - 32);
      else {
        low |= bits << 28;
        high = bits >> 4;
      }
    }
    return high * 2 ** 32 + (low >>> 0);
  }

  /** Reads the 32 low bits of the varint at `start`, and moves `start` behind it. */
  #varint(): number {
    const end = this.#varintEnd(this.start);
    let value = 0;
    for (let shift = 0; this.start < end; this.start += 1, shift += 7)
      if (shift < 32) value |= ((this.bytes[this.start] ?? 0) & 0x7f) << shift;
    return value >>> 0;
  }

  #varintEnd(from: number): number {
    const most = Math.min(from + VARINT_BYTES, this.limit);
    for (let at = from; at < most; at += 1) if ((this.bytes[at] ?? 0) < 0x80) return at + 1;
    throw new RangeError(`not a protobuf message: a varint does not end at byte ${most}`);
  }
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

/** Returns each occurrence of a length-delimited field. Throws RangeError as {@link Fields.next} does. */
export function contentsOf(message: Uint8Array, field: number): readonly Uint8Array[] {
  const contents: Uint8Array[] = [];
  const fields = new Fields(message);
  while (fields.next()) if (fields.key === delimitedKey(field)) contents.push(fields.content());
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
