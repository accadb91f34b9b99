import { expect, test } from 'vitest';
import { HeaderField } from '../../../src/http2/hpack/field.ts';
import { plainCall } from '../../../src/server/proxy/handling.ts';
import { request } from '../../support/http2/wire.ts';

type Fields = { name: string; value: string }[];
const read = (fields: Fields): ReturnType<typeof plainCall> =>
  plainCall(fields.map(({ name, value }) => new HeaderField(name, value, 0, 0, false)));
const REQUEST = request('/a/B') as Fields;
const and = (name: string, value: string): Fields => [...REQUEST, { name, value }];
const instead = (name: string, value: string): Fields =>
  REQUEST.map((field) => (field.name === name ? { name, value } : field));
const without = (name: string): Fields => REQUEST.filter((field) => field.name !== name);

test.each<[string, Fields, number]>([
  ['no timeout', REQUEST, Infinity],
  ['a timeout', and('grpc-timeout', '1500m'), 1500],
  ['a part of a millisecond', and('grpc-timeout', '1999u'), 1],
  ['the subtype proto', instead('content-type', 'application/grpc+proto'), Infinity],
  ['no te', without('te'), Infinity],
  ['identity', and('grpc-encoding', 'identity'), Infinity],
])('a call is plain with %s', (_, fields, timeoutMs) => {
  expect(read(fields)?.timeoutMs).toBe(timeoutMs);
});

test.each<[string, Fields]>([
  ['GET', instead(':method', 'GET')],
  ['no method', without(':method')],
  ['no scheme', without(':scheme')],
  ['another scheme', instead(':scheme', 'ftp')],
  ['no path', without(':path')],
  ['no authority', without(':authority')],
  ['a path without a slash', instead(':path', 'a')],
  ['an unknown pseudo-header field', [{ name: ':protocol', value: 'x' }, ...REQUEST]],
  ['a pseudo-header field behind a header', [...without(':path'), { name: ':path', value: '/a/B' }]],
  ['no content type', without('content-type')],
  ['another content type', instead('content-type', 'text/html')],
  ['another te', instead('te', 'gzip')],
  ['a compression', and('grpc-encoding', 'gzip')],
  ['a repeated name', [...and('x-a', '1'), { name: 'x-a', value: '2' }]],
  ['a capital letter', and('X-a', '1')],
  ['an empty name', and('', '1')],
  ['an empty value', and('x-a', '')],
  ['a value with a line end', and('x-a', '1\n2')],
  ['a value that ends with a space', and('x-a', '1 ')],
  ['a value that is not ASCII', and('x-a', 'ü')],
  ['an unknown unit of time', and('grpc-timeout', '1x')],
  ['too many digits', and('grpc-timeout', '123456789m')],
  ['a time too long for a timer', and('grpc-timeout', '600H')],
  ['a header of HTTP/1', and('connection', 'close')],
  ['a content length', and('content-length', '10')],
  ['a header that the shim uses itself', and('x-cri-resize-shim-peer', '1')],
  ['too many headers', [...REQUEST, ...Array.from({ length: 60 }, (_, at) => ({ name: `x-${at}`, value: '1' }))]],
  ['too long headers', and('x-a', 'a'.repeat(17_000))],
])('a call is not plain with %s', (_, fields) => {
  expect(read(fields)).toBeUndefined();
});
