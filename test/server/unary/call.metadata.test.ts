import { expect, test } from 'vitest';
import { metadataOf } from '../../../src/server/unary/call.ts';

const fields = (of: Record<string, string>): { name: string; value: string }[] =>
  Object.entries(of).map(([name, value]) => ({ name, value }));

test('a call carries the headers of its client on, with bytes decoded', () => {
  const metadata = metadataOf(fields({ 'x-user': 'a, b', 'x-bytes-bin': 'AAE=,Ag', 'user-agent': 'grpc-go/1.80.0' }));
  expect(metadata.get('x-user')).toEqual(['a, b']);
  expect(metadata.get('x-bytes-bin')).toEqual([Buffer.from([0, 1]), Buffer.from([2])]);
  expect(metadata.get('user-agent')).toEqual(['grpc-go/1.80.0']);
});

test('the headers of one connection are not carried on', () => {
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
