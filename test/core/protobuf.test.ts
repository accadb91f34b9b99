import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, test } from 'vitest';
import {
  contentsOf,
  createWriter,
  delimitedKey,
  Fields,
  textOf,
  varintKey,
  writeInt64,
  writeMapEntry,
  writeString,
} from '../../src/core/protobuf.ts';

describe('reading fields', () => {
  test('returns the written fields in order, and skips those that are not read', () => {
    const inner = writeMapEntry(createWriter(), 3, 'key', 'välue').finish();
    const message = writeString(createWriter().uint32(varintKey(1)).int64(-1), 2, 'text')
      .uint32(delimitedKey(16))
      .bytes(inner)
      .finish();
    const seen: unknown[] = [];
    const fields = new Fields(message);
    while (fields.next()) {
      if (fields.key === delimitedKey(2)) seen.push(fields.keyStart, textOf(fields.content()));
      if (fields.key !== delimitedKey(16)) continue;
      const entries = fields.inner();
      while (entries.next()) seen.push(entries.key, entries.end === fields.end);
    }
    expect(seen).toEqual([11, 'text', delimitedKey(3), true]);
    expect([fields.end, fields.next()]).toEqual([message.length, false]);
    const [entry = Buffer.alloc(0)] = contentsOf(inner, 3);
    expect([1, 2, 3].map((field) => textOf(contentsOf(entry, field)[0]))).toEqual(['key', 'välue', '']);
  });

  test('returns each occurrence of a field', () => {
    const message = writeString(writeString(writeString(createWriter(), 1, 'a'), 2, 'b'), 1, 'c').finish();
    expect(contentsOf(message, 1).map(textOf)).toEqual(['a', 'c']);
  });

  test('rejects groups and sub-messages that end past their parent', () => {
    expect(() => contentsOf(Buffer.from([(1 << 3) | 3, (1 << 3) | 4]), 1)).toThrow(/wire type 3 at byte 1/);
    const nested = Buffer.from([delimitedKey(1), 2, delimitedKey(1), 3, 0, 0, 0]);
    const fields = new Fields(nested);
    fields.next();
    expect(() => fields.inner().next()).toThrow(/a field ends at byte 7, past 4/);
  });

  test('rejects varints of more than ten bytes with RangeError', () => {
    for (const head of [[], [delimitedKey(1)]])
      expect(() => contentsOf(Buffer.from([...head, ...Array<number>(11).fill(0xff), 1]), 1)).toThrow(RangeError);
  });

  test('throws no other error than RangeError for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        try {
          contentsOf(bytes, 1);
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
        }
      }),
    );
  });
});

test('integers are read and written as protobufjs does, and a varint without an end is rejected', () => {
  const edges = [0, -1, 1, 127, 128, 2 ** 31, -(2 ** 31), 2 ** 32, -(2 ** 32), 2 ** 53 - 1, -(2 ** 53 - 1)];
  const value = fc.oneof(fc.constantFrom(...edges), fc.maxSafeInteger());
  fc.assert(
    fc.property(value, (number) => {
      const written = protobuf.Writer.create().int64(number).finish();
      const fields = new Fields(Buffer.from([varintKey(1), ...written]));
      expect([fields.next(), fields.integer(), fields.next()]).toEqual([true, number, false]);
      const into = new Uint8Array(12);
      expect(into.subarray(1, writeInt64(into, 1, number))).toEqual(Uint8Array.from(written));
    }),
  );
  for (const bytes of [[], [0x80], Array<number>(11).fill(0x80)])
    expect(() => new Fields(Uint8Array.from([varintKey(1), ...bytes])).next()).toThrow(RangeError);
});
