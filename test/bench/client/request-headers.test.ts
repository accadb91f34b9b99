import { expect, test } from 'vitest';
import { RequestHeaders } from '../../../bench/client/request-headers.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';

const fieldsOf = (decoder: HpackDecoder, block: Buffer): string[] =>
  decoder.decode(block).map(({ name, value }) => `${name}=${value}`);

const expected = (path: string): string[] => [
  ':method=POST',
  ':scheme=http',
  `:path=${path}`,
  ':authority=localhost',
  'content-type=application/grpc',
  'user-agent=grpc-go/1.72.2',
  'te=trailers',
  'grpc-timeout=120000m',
];

test('encodes repeated calls with the dynamic table only, for any order of paths', () => {
  const headers = new RequestHeaders();
  const decoder = new HpackDecoder(4096, 65_536);
  for (const path of ['/a/First', '/a/Second', '/a/First', '/a/Third', '/a/Second', '/a/First']) {
    const known = headers.knows(path);
    const block = headers.next(path);
    expect(fieldsOf(decoder, block)).toEqual(expected(path));
    expect(block.length === 8).toBe(known);
  }
});

test('rejects a path that is too long, and too many paths', () => {
  const headers = new RequestHeaders();
  expect(() => headers.next('x'.repeat(200))).toThrow(RangeError);
  const many = (): void => {
    for (let index = 0; index < 100; index += 1) headers.next(`/a/${index}`);
  };
  expect(many).toThrow(RangeError);
});
