import { createWriter, delimitedKey, varintKey } from '../../../src/core/protobuf.ts';
import type { Random } from '../random.ts';
import { hostileText, INTEGERS, mutateBytes } from './values.ts';

/** Returns an encoded protobuf message with one to three changes of its fields, or of its bytes. */
export function mutateMessage(message: Buffer, random: Random): Buffer {
  let changed = message;
  for (let count = random.below(4); count > 0; count -= 1) changed = changeOnce(changed, random, 0);
  return random.chance(5) ? mutateBytes(changed, random) : changed;
}

/** A field on the wire. */
interface WireField {
  readonly number: number;
  readonly type: number;
  /** With key and length. */
  readonly bytes: Buffer;
  /** The content of a length-delimited field. */
  readonly content: Buffer | undefined;
}

function changeOnce(message: Buffer, random: Random, depth: number): Buffer {
  const fields = fieldsOf(message);
  if (fields === undefined || fields.length === 0) return Buffer.concat([message, randomField(random)]);
  const at = random.below(fields.length);
  const field = fields[at]!;
  const parts = fields.map(({ bytes }) => bytes);
  switch (random.below(8)) {
    case 0:
      parts.splice(at, 1);
      break;
    case 1:
      parts.splice(random.below(parts.length + 1), 0, field.bytes);
      break;
    case 2:
      parts.splice(random.below(parts.length + 1), 0, randomField(random));
      break;
    case 3:
      parts[at] = other(field.number, random);
      break;
    default:
      parts[at] =
        field.content === undefined || depth > 6
          ? other(field.number, random)
          : delimited(field.number, changedContent(field.content, random, depth));
  }
  return Buffer.concat(parts);
}

function changedContent(content: Buffer, random: Random, depth: number): Buffer {
  const inner = fieldsOf(content);
  if (inner !== undefined && inner.length > 0 && !random.chance(4)) return changeOnce(content, random, depth + 1);
  return random.chance(2)
    ? Buffer.from(hostileText(random), random.chance(4) ? 'latin1' : 'utf8')
    : mutateBytes(content, random);
}

/** Returns a value of any type for a field. */
function other(number: number, random: Random): Buffer {
  const kind = random.below(8);
  if (kind < 4)
    return Buffer.from(
      createWriter()
        .uint32(varintKey(number))
        .int64(String(random.pick(INTEGERS)))
        .finish(),
    );
  if (kind < 6) return delimited(number, Buffer.from(hostileText(random)));
  if (kind === 6) return Buffer.concat([key(number, random.below(8)), random.bytes(random.below(12))]);
  // A length beyond the end.
  return Buffer.concat([key(number, 2), varint(random.pick([200, 2 ** 31 - 1, 2 ** 32 - 1]))]);
}

const randomField = (random: Random): Buffer =>
  other(random.pick([1, 2, 3, 4, 5, 9, 15, 16, 200, 536_870_911]), random);

const delimited = (number: number, content: Buffer): Buffer =>
  Buffer.concat([varint(delimitedKey(number)), varint(content.length), content]);

const key = (number: number, type: number): Buffer => varint(((number << 3) | type) >>> 0);

function varint(value: number): Buffer {
  return Buffer.from(
    createWriter()
      .uint32(value >>> 0)
      .finish(),
  );
}

/** Returns undefined for bytes that are not a message. Independent of the parsers that are tested. */
function fieldsOf(message: Buffer): WireField[] | undefined {
  const fields: WireField[] = [];
  let at = 0;
  const read = (): number => {
    let value = 0;
    for (let shift = 0; at < message.length; shift += 7) {
      const octet = message[at]!;
      at += 1;
      value += (octet & 127) * 2 ** shift;
      if (octet < 128) return value;
    }
    return Number.NaN;
  };
  while (at < message.length) {
    const start = at;
    const tag = read();
    const type = tag % 8;
    const isDelimited = type === 2;
    const length = isDelimited ? read() : type === 0 ? (read(), 0) : type === 1 ? 8 : type === 5 ? 4 : Number.NaN;
    const from = at;
    at += length;
    if (!(at <= message.length) || tag < 8) return undefined;
    const content = isDelimited ? message.subarray(from, at) : undefined;
    fields.push({ number: Math.floor(tag / 8), type, bytes: message.subarray(start, at), content });
  }
  return fields;
}
