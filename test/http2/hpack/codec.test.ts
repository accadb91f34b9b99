import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { HpackDecoder, HpackEncoder } from '../../../src/http2/hpack/codec.ts';
import { HeaderField } from '../../../src/http2/hpack/field.ts';
import type { Pairs } from '../../support/http2/reference-hpack.ts';
import { decoderOf, errorCodeOf, hex, pairs, ReferenceEncoder, tableOf } from '../../support/http2/reference-hpack.ts';

const DATE = 'Mon, 21 Oct 2013 20:13:21 GMT';
const COOKIE = 'foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1';

describe('examples of RFC 7541 Appendix C', () => {
  test.each<[string, string, Pairs, boolean, Pairs]>([
    [
      'C.2.1',
      '400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572',
      [['custom-key', 'custom-header']],
      false,
      [['custom-key', 'custom-header']],
    ],
    ['C.2.2', '040c 2f73 616d 706c 652f 7061 7468', [[':path', '/sample/path']], false, []],
    ['C.2.3', '1008 7061 7373 776f 7264 0673 6563 7265 74', [['password', 'secret']], true, []],
    ['C.2.4', '82', [[':method', 'GET']], false, []],
  ])('decodes the example %s of RFC 7541: a header field representation', (_, block, fields, sensitive, table) => {
    const decoder = decoderOf();
    const decoded = decoder.decode(hex(block));
    expect(pairs(decoded)).toEqual(fields);
    expect(decoded[0]!.sensitive).toBe(sensitive);
    expect(tableOf(decoder)).toEqual(table);
  });

  const www: Pairs[number] = [':authority', 'www.example.com'];
  const requests: [block: Pairs, table: Pairs][] = [
    [[[':method', 'GET'], [':scheme', 'http'], [':path', '/'], www], [www]],
    [
      [[':method', 'GET'], [':scheme', 'http'], [':path', '/'], www, ['cache-control', 'no-cache']],
      [['cache-control', 'no-cache'], www],
    ],
    [
      [[':method', 'GET'], [':scheme', 'https'], [':path', '/index.html'], www, ['custom-key', 'custom-value']],
      [['custom-key', 'custom-value'], ['cache-control', 'no-cache'], www],
    ],
  ];
  const later = DATE.replace(':21 ', ':22 ');
  const location: Pairs[number] = ['location', 'https://www.example.com'];
  const responses: [block: Pairs, table: Pairs][] = [
    [
      [[':status', '302'], ['cache-control', 'private'], ['date', DATE], location],
      [location, ['date', DATE], ['cache-control', 'private'], [':status', '302']],
    ],
    [
      [[':status', '307'], ['cache-control', 'private'], ['date', DATE], location],
      [[':status', '307'], location, ['date', DATE], ['cache-control', 'private']],
    ],
    [
      [
        [':status', '200'],
        ['cache-control', 'private'],
        ['date', later],
        location,
        ['content-encoding', 'gzip'],
        ['set-cookie', COOKIE],
      ],
      [
        ['set-cookie', COOKIE],
        ['content-encoding', 'gzip'],
        ['date', later],
      ],
    ],
  ];

  test.each([
    [
      'C.3',
      4096,
      requests,
      [
        '8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d',
        '8286 84be 5808 6e6f 2d63 6163 6865',
        '8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65',
      ],
    ],
    [
      'C.4',
      4096,
      requests,
      [
        '8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff',
        '8286 84be 5886 a8eb 1064 9cbf',
        '8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf',
      ],
    ],
    [
      'C.5',
      256,
      responses,
      [
        `4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d`,
        '4803 3330 37c1 c0bf',
        `88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b
         2076 6572 7369 6f6e 3d31`,
      ],
    ],
    [
      'C.6',
      256,
      responses,
      [
        `4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7
         8f0b 97c8 e9ae 82ae 43d3`,
        '4883 640e ffc1 c0bf',
        `88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07`,
      ],
    ],
  ])('decodes the example %s of RFC 7541: three header blocks on one connection', (_, tableSize, expected, blocks) => {
    const decoder = decoderOf(tableSize);
    blocks.forEach((block, index) => {
      expect(pairs(decoder.decode(hex(block)))).toEqual(expected[index]![0]);
      expect(tableOf(decoder)).toEqual(expected[index]![1]);
    });
  });
});

describe('HpackDecoder', () => {
  test.each([
    ['index 0', '80'],
    ['an index that is not in the tables', 'be'],
    ['a name index that is not in the tables', '7f 00 01 61'],
    ['a string longer than its block', '00 03 61'],
    ['a field without a value', '00 01 61'],
    ['a table size update above the setting', '3f e2 1f'],
    ['a table size update after a field', '82 20'],
  ])('rejects a header block with %s', (_, block) => {
    expect(errorCodeOf(() => decoderOf().decode(hex(block)))).toBe(ErrorCode.COMPRESSION_ERROR);
  });

  test('accepts a table size update up to the setting, and evicts entries that do not fit', () => {
    const decoder = decoderOf();
    decoder.decode(hex('40 01 61 01 31 40 01 62 01 32'));
    expect(tableOf(decoder)).toEqual([
      ['b', '2'],
      ['a', '1'],
    ]);
    // 34 octets: space for one of the two entries.
    decoder.decode(hex('3f 03'));
    expect(tableOf(decoder)).toEqual([['b', '2']]);
    decoder.decode(hex('20 3f e1 1f'));
    expect(tableOf(decoder)).toEqual([]);
  });

  test('empties the dynamic table for a field that is larger than the table', () => {
    const decoder = decoderOf(64);
    decoder.decode(hex('40 01 61 01 31'));
    decoder.decode(Buffer.concat([hex('40 01 62 28'), Buffer.alloc(40, 'x')]));
    expect(tableOf(decoder)).toEqual([]);
  });

  test('rejects a header block as soon as its decoded size exceeds the limit', () => {
    const decoder = new HpackDecoder(4096, 16_384);
    const large = Buffer.concat([hex('40 01 61 7f a1 1e'), Buffer.alloc(4000, 'x')]);
    decoder.decode(large);
    expect(errorCodeOf(() => decoder.decode(Buffer.alloc(100_000, 0xbe)))).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });
});

describe('HpackEncoder', () => {
  const octets = fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes).toString('latin1'));
  const name = fc.oneof(
    fc.constantFrom(':path', ':authority', 'content-type', 'grpc-timeout', 'te', 'user-agent', 'x-a'),
    octets,
  );
  const fields = fc.array(
    fc.record({ name, value: octets, sensitive: fc.boolean(), huffman: fc.boolean(), index: fc.boolean() }),
    { maxLength: 12 },
  );
  const blocks = fc.array(fc.record({ fields, tableSize: fc.option(fc.nat(4096), { nil: undefined }) }), {
    maxLength: 8,
  });

  test('encodes decoded fields again, for any use of indexing, Huffman coding and table sizes', () => {
    fc.assert(
      fc.property(blocks, (sent) => {
        const client = new ReferenceEncoder(4096);
        const decoder = decoderOf();
        const encoder = new HpackEncoder();
        // The receiver has no dynamic table, so no block for it may use one.
        const receiver = decoderOf(0);
        for (const block of sent) {
          const bytes = client.encode(block.fields, block.tableSize);
          const decoded = decoder.decode(bytes);
          const expected = block.fields.map((field) => [field.name, field.value, field.sensitive]);
          const seen = (list: readonly HeaderField[]): unknown[] =>
            list.map((field) => [field.name, field.value, field.sensitive]);
          expect(seen(decoded)).toEqual(expected);
          const again = encoder.encode(decoded);
          expect(seen(receiver.decode(again))).toEqual(expected);
          expect(receiver.plain || block === sent[0]).toBe(true);
          // A plain block can be decoded without the client's dynamic table.
          if (decoder.plain) expect(seen(decoderOf(0).decode(bytes))).toEqual(expected);
        }
      }),
      { numRuns: 300 },
    );
  });

  test('puts a table size update into the first block only', () => {
    const encoder = new HpackEncoder();
    const field = new HeaderField('te', 'trailers', 0, 0, false);
    expect(encoder.encode([field])[0]).toBe(0x20);
    expect(encoder.encode([field])[0]).toBe(0x00);
  });
});
