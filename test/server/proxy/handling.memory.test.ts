import { expect, test } from 'vitest';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import type { HandledCall } from '../../../src/server/proxy/interception.ts';
import type { LocalStream } from '../../../src/server/proxy/stream.ts';
import { HEADERS, data, headers, message, openProxy, request, settings } from '../../support/http2/wire.ts';

const FIELDS = request('/handle/A', [{ name: 'x-user', value: 'kubelet' }]);

/** Returns an open proxy and the calls that it has started. */
function serving() {
  const calls: HandledCall[] = [];
  return Object.assign(openProxy({ handle: (call) => void calls.push(call) }), { calls });
}

/** Returns a copy of bytes in memory that nothing else uses, as a read of a socket has. */
function readOf(bytes: Buffer): Buffer {
  const read = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(read);
  return read;
}

test.each([
  ['whole frames', [] as number[]],
  ['split frames', [20]],
])('headers of a call that turns out to be compressed reach the local server unchanged: %s', (_, [split = 0]) => {
  const proxy = serving();
  const opening = headers(1, FIELDS);
  const body = data(1, message(Buffer.alloc(400, 'A'), true), true);
  for (const bytes of [opening, body]) {
    if (split > 0) proxy.client.send(bytes.subarray(0, split));
    proxy.client.send(bytes.subarray(split));
  }
  const local = proxy.locals[0]!;
  local.send(settings());
  const [seen] = local.take().filter(({ type }) => type === HEADERS);
  const fields = new HpackDecoder(4096, 65_536).decode(seen!.payload);
  expect(fields.map(({ name, value }) => ({ name, value }))).toEqual(FIELDS);
});

test('a call that waits for its request keeps no memory of the read', () => {
  const proxy = serving();
  const read = readOf(headers(1, FIELDS));
  proxy.client.events.data(read);
  const { call, fields } = proxy.core.streams.get(1) as LocalStream;
  expect(fields).toHaveLength(FIELDS.length);
  for (const field of [...fields, ...call!.headers]) expect(field.wire.buffer === read.buffer).toBe(false);
});

test('an empty message is handled as a request', () => {
  const proxy = serving();
  proxy.client.send(headers(1, FIELDS), data(1, message(Buffer.alloc(0)), true));
  expect(proxy.calls[0]!.request).toHaveLength(0);
});

test.each([
  ['in one frame', 0],
  ['in two frames', 3],
])('a running call keeps its request and no other memory: %s', (_, split) => {
  const proxy = serving();
  const whole = message(Buffer.of(7));
  proxy.client.send(headers(1, FIELDS));
  if (split > 0) proxy.client.send(data(1, whole.subarray(0, split)));
  proxy.client.send(data(1, whole.subarray(split), true));
  const [call] = proxy.calls;
  expect([call!.request[0], call!.request.length, call!.request.buffer.byteLength]).toEqual([7, 1, 1]);
  expect((proxy.core.streams.get(1) as LocalStream).fields).toEqual([]);
});
