import { Metadata as JsMetadata, status } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import {
  Code,
  grpcCodeName,
  MESSAGE_PREFIX_SIZE,
  Metadata,
  messagePrefix,
  writeMessagePrefix,
} from '../../src/core/grpc.ts';

test('the status codes and their names are those of gRPC', () => {
  const numbers = Object.entries(status).filter(([, code]) => typeof code === 'number');
  expect(Object.entries(Code)).toEqual(numbers);
  expect(numbers).toHaveLength(17);
  for (const [name, code] of numbers) expect(grpcCodeName(Number(code))).toBe(name);
});

test('the name of an unknown status code is its number', () => {
  expect(grpcCodeName(17)).toBe('17');
  expect(grpcCodeName(-1)).toBe('-1');
});

test('the prefix of a gRPC message is a zero byte and the message length in four bytes', () => {
  expect([...messagePrefix(0x01020304)]).toEqual([0, 1, 2, 3, 4]);
  const bytes = Buffer.alloc(MESSAGE_PREFIX_SIZE + 2, 0xff);
  writeMessagePrefix(bytes, 1, 7);
  expect([...bytes]).toEqual([0xff, 0, 0, 0, 0, 7, 0xff]);
});

function metadataOf(...fields: readonly (readonly [name: string, text: string])[]): Metadata {
  const metadata = new Metadata();
  for (const [name, text] of fields) expect(metadata.add(name, text)).toBe(true);
  return metadata;
}

test('names and values stay in order, and a name may be repeated', () => {
  const fields = [
    ['x-b', '2'],
    ['x-a', '1'],
    ['x-b', ' 3, 4 '],
    ['x-empty', ''],
  ] as const;
  const metadata = metadataOf(...fields);
  expect(metadata.fields()).toEqual(fields);
  expect(metadata.pairs()).toEqual(fields);
  expect(metadata.get('x-b')).toEqual(['2', ' 3, 4 ']);
  expect(metadata.get('x-c')).toEqual([]);
});

test('values of names with the suffix -bin are bytes, and one field may hold several of them', () => {
  const metadata = metadataOf(['x-bin', 'AAE=, Ag'], ['x-bin', '/w'], ['x-empty-bin', '']);
  expect(metadata.get('x-bin')).toEqual([Buffer.of(0, 1), Buffer.of(2), Buffer.of(255)]);
  expect(metadata.get('x-empty-bin')).toEqual([Buffer.alloc(0)]);
  expect(metadata.pairs().map(([name]) => name)).toEqual(['x-bin', 'x-bin', 'x-bin', 'x-empty-bin']);
});

test('fields of bytes are sent as received, because each value alone would carry the name again', () => {
  const fields = [
    [`grpc-${'a'.repeat(8000)}-bin`, ','.repeat(8000)],
    ['x-bin', 'AAE=, Ag'],
  ] as const;
  expect(metadataOf(...fields).fields()).toEqual(fields);
});

test.each([
  ['an empty name', '', 'a'],
  ['a name in upper case', 'X-A', 'a'],
  ['a pseudo-header field', ':path', '/s/A'],
  ['a name with a space', 'x a', 'a'],
  ['a value that is not ASCII', 'x-a', 'ä'],
  ['a value with a line break', 'x-a', 'a\r\nx-b: b'],
  ['bytes that are not ASCII', 'x-bin', 'ä'],
])('metadata omits %s', (_, name, text) => {
  const metadata = new Metadata();
  expect(metadata.add(name, text)).toBe(false);
  expect(metadata.fields()).toEqual([]);
});

test('metadata reads the values that grpc-js writes as HTTP/2 headers', () => {
  const js = new JsMetadata();
  js.add('x-a', '1');
  js.add('x-a', '2');
  js.add('x-b', '3');
  js.add('x-bin', Buffer.of(0, 255));
  js.add('x-bin', Buffer.of(1));
  expect(Metadata.ofHeaders(js.toHttp2Headers()).pairs()).toEqual([
    ['x-a', '1'],
    ['x-a', '2'],
    ['x-b', '3'],
    ['x-bin', Buffer.of(0, 255)],
    ['x-bin', Buffer.of(1)],
  ]);
});

test('metadata accepts numbers in header fields of node:http2, and omits missing and pseudo-header fields', () => {
  const headers = { ':status': 200, 'x-number': 7, 'x-missing': undefined };
  expect(Metadata.ofHeaders(headers).fields()).toEqual([['x-number', '7']]);
});
