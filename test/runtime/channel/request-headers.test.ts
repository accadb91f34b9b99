import { expect, test } from 'vitest';
import { Metadata } from '../../../src/core/grpc.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import { metadataBlock, pathBlock, timeoutBlock } from '../../../src/runtime/channel/request-headers.ts';
import type { Pairs } from '../../support/http2/reference-hpack.ts';
import { pairs } from '../../support/http2/reference-hpack.ts';

/** Decodes without a dynamic table. Throws if the block uses one. */
function decoded(block: Buffer): Pairs {
  const decoder = new HpackDecoder(0, MiB);
  const fields = pairs(decoder.decode(block));
  expect(decoder.plain).toBe(true);
  return fields;
}

test('a call sends its pseudo-header fields first, then the gRPC fields', () => {
  const block = pathBlock('/runtime.v1.RuntimeService/Version');
  expect(decoded(block)).toEqual([
    [':method', 'POST'],
    [':scheme', 'http'],
    [':path', '/runtime.v1.RuntimeService/Version'],
    [':authority', 'localhost'],
    ['content-type', 'application/grpc'],
    ['te', 'trailers'],
    ['user-agent', 'grpc-node-cri-resize-shim/1.0'],
  ]);
  expect(pathBlock('/runtime.v1.RuntimeService/Version')).toBe(block);
});

test('the number of cached path blocks is limited', () => {
  const first = pathBlock('/s/0');
  for (let index = 1; index <= 64; index += 1) pathBlock(`/s/${index}`);
  expect(pathBlock('/s/0')).not.toBe(first);
  expect(pathBlock('/s/0')).toEqual(first);
});

test.each([
  [10_000, '10000m'],
  [0.2, '1m'],
  [-3, '1m'],
  [99_999_998.5, '99999999m'],
  [100_000_000, '100000S'],
  [99_999_999_001, '1666667M'],
  [360_000_000_000_000, '99999999H'],
])('a timeout of %d ms is sent as grpc-timeout %s', (ms, timeout) => {
  const text = ms === 360_000_000_000_000 ? decoded(timeoutBlock(ms - 3_600_000)) : decoded(timeoutBlock(ms));
  expect(text).toEqual([['grpc-timeout', timeout]]);
});

test('a timeout that is too long for grpc-timeout is omitted', () => {
  expect(timeoutBlock(360_000_000_000_000)).toHaveLength(0);
  expect(timeoutBlock(Infinity)).toHaveLength(0);
});

test('metadata is copied, except for fields that belong to the connection or the message', () => {
  const metadata = new Metadata();
  for (const [name, value] of [
    ['x-request-id', 'a'],
    ['x-request-id', 'b'],
    ['traceparent', '00-1-2-01'],
    ['user-agent', 'kubelet'],
    ['te', 'trailers'],
    ['content-type', 'application/grpc'],
    ['grpc-timeout', '1S'],
    ['grpc-encoding', 'gzip'],
    ['grpc-accept-encoding', 'gzip'],
    ['accept-encoding', 'gzip'],
    ['host', 'x'],
    ['connection', 'close'],
  ] as const)
    metadata.add(name, value);
  metadata.add('grpc-tags-bin', 'AP8');
  expect(decoded(metadataBlock(metadata))).toEqual([
    ['x-request-id', 'a'],
    ['x-request-id', 'b'],
    ['traceparent', '00-1-2-01'],
    ['grpc-tags-bin', 'AP8'],
  ]);
  expect(metadataBlock(undefined)).toHaveLength(0);
  expect(metadataBlock(new Metadata())).toHaveLength(0);
});
