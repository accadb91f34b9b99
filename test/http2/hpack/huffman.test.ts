import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { decodeHuffman, huffmanCodes } from '../../../src/http2/hpack/huffman.ts';
import { errorCodeOf, huffman } from '../../support/http2/reference-hpack.ts';

describe('Huffman code', () => {
  test("the Huffman code is a complete prefix code (Kraft's equality)", () => {
    const codes = huffmanCodes();
    expect(codes).toHaveLength(257);
    expect(codes.reduce((sum, { length }) => sum + 2 ** -length, 0)).toBe(1);
    // Samples of each part of RFC 7541 Appendix B, EOS last.
    const sample = (symbol: number): string => codes[symbol]!.code.toString(16);
    expect([0, 10, 32, 48, 97, 122, 127, 128, 199, 255, 256].map(sample)).toEqual(
      '1ff8 3ffffffc 14 0 3 7b ffffffc fffe6 1ffffec 3ffffee 3fffffff'.split(' '),
    );
  });

  test('decodes any octets in Huffman code', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 6000 }), (octets) => {
        const text = Buffer.from(octets).toString('latin1');
        const bytes = huffman(text);
        expect(decodeHuffman(bytes, 0, bytes.length)).toBe(text);
      }),
    );
  });

  test.each([
    ['a whole octet of padding', Buffer.concat([huffman('a!'), Buffer.of(0xff)])],
    ['padding that is not of ones', Buffer.of(0b00011_000)],
    ['EOS', Buffer.of(0xff, 0xff, 0xff, 0xff)],
    ['EOS followed by a letter', Buffer.of(0xff, 0xff, 0xff, 0xfc, 0x1f)],
  ])('rejects Huffman code with %s', (_, bytes) => {
    expect(errorCodeOf(() => decodeHuffman(bytes, 0, bytes.length))).toBe(ErrorCode.COMPRESSION_ERROR);
  });
});
