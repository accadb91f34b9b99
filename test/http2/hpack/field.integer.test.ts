import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { integerSize, readInteger, readOctet, writeInteger } from '../../../src/http2/hpack/field.ts';
import { decoderOf, errorCodeOf, hex } from '../../support/http2/reference-hpack.ts';

describe('examples of RFC 7541 Appendix C', () => {
  test.each([
    ['C.1.1', 10, 5, '0a'],
    ['C.1.2', 1337, 5, '1f9a0a'],
    ['C.1.3', 42, 8, '2a'],
  ])(
    'encodes and decodes the example %s of RFC 7541: integer %i with a prefix of %i bits',
    (_, value, prefix, wire) => {
      const bytes = Buffer.alloc(integerSize(value, prefix));
      expect(writeInteger(bytes, 0, value, prefix, 0)).toBe(bytes.length);
      expect(bytes.toString('hex')).toBe(wire);
      const cursor = { bytes, at: 0, end: bytes.length };
      expect(readInteger(cursor, readOctet(cursor), prefix)).toBe(value);
      expect(cursor.at).toBe(bytes.length);
    },
  );
});

describe('an integer', () => {
  test('decodes an integer to its encoded value, and predicts its encoded size', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 28 - 1 }), fc.integer({ min: 1, max: 8 }), (value, prefix) => {
        const bytes = Buffer.alloc(integerSize(value, prefix));
        expect(writeInteger(bytes, 0, value, prefix, 0)).toBe(bytes.length);
        const cursor = { bytes, at: 0, end: bytes.length };
        expect(readInteger(cursor, readOctet(cursor), prefix)).toBe(value);
      }),
    );
  });

  test.each([
    ['too large', 'ff ff ff ff ff 0f'],
    ['continuation octets without value', 'ff 80 80 80 80 80 80 80 80 80 00'],
    ['cut off', 'ff 80'],
  ])('rejects an invalid integer: %s', (_, block) => {
    expect(errorCodeOf(() => decoderOf().decode(hex(block)))).toBe(ErrorCode.COMPRESSION_ERROR);
  });
});
