import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HpackEncoder } from '../../../src/http2/hpack/codec.ts';
import { HeaderField } from '../../../src/http2/hpack/field.ts';
import { ReferenceEncoder } from '../../support/http2/reference-hpack.ts';
import { decoderOf } from '../../support/http2/hpack.ts';

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
