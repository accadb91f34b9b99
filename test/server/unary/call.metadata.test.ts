import { expect, test } from 'vitest';
import { metadataOf } from '../../../src/server/unary/call.ts';

const fields = (of: Record<string, string>): { name: string; value: string }[] =>
  Object.entries(of).map(([name, value]) => ({ name, value }));

test('the metadata of a call has the headers of its client, with binary values decoded', () => {
  const metadata = metadataOf(fields({ 'x-user': 'a, b', 'x-bytes-bin': 'AAE=,Ag', 'user-agent': 'grpc-go/1.80.0' }));
  expect(metadata.get('x-user')).toEqual(['a, b']);
  expect(metadata.get('x-bytes-bin')).toEqual([Buffer.from([0, 1]), Buffer.from([2])]);
  expect(metadata.get('user-agent')).toEqual(['grpc-go/1.80.0']);
});

test('the metadata of a call omits headers that concern one connection', () => {
  const own = {
    'content-type': 'application/grpc',
    te: 'trailers',
    'grpc-timeout': '1S',
    'grpc-encoding': 'identity',
    'grpc-accept-encoding': 'gzip',
    'accept-encoding': 'gzip',
  };
  expect(metadataOf(fields(own)).fields()).toEqual([]);
});
