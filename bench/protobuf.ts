/** Writes protobuf messages field by field, for messages without a .proto file in this repository. */

const VARINT = 0;
const LENGTH_DELIMITED = 2;

/** Writes a field of a scalar integer type that is not negative. */
export function integer(field: number, value: number): Buffer {
  return Buffer.concat([varint(field * 8 + VARINT), varint(value)]);
}

/** Writes a string, or an encoded sub-message. */
export function bytes(field: number, value: string | Uint8Array): Buffer {
  const content = Buffer.from(value);
  return Buffer.concat([varint(field * 8 + LENGTH_DELIMITED), varint(content.length), content]);
}

/** Writes a sub-message with these fields. */
export function message(field: number, ...fields: readonly Buffer[]): Buffer {
  return bytes(field, Buffer.concat(fields));
}

/** Writes a map<string, string>. */
export function map(field: number, entries: Readonly<Record<string, string>>): Buffer {
  return Buffer.concat(Object.entries(entries).map(([key, value]) => message(field, bytes(1, key), bytes(2, value))));
}

function varint(value: number): Buffer {
  const octets: number[] = [];
  let rest = value;
  while (rest >= 0x80) {
    octets.push((rest % 0x80) + 0x80);
    rest = Math.floor(rest / 0x80);
  }
  octets.push(rest);
  return Buffer.from(octets);
}
