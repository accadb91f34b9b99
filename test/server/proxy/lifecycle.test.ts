import { describe, expect, test } from 'vitest';
import {
  data,
  frame,
  GOAWAY,
  goaway,
  headers,
  openProxy,
  PING,
  request,
  type SeenFrame,
} from '../../support/http2/wire.ts';

const CLIENT_HAS_GOAWAY = frame(PING, 1, 0, Buffer.from('shutdown'));

function lastStreams(frames: readonly SeenFrame[]): readonly number[] {
  return frames.filter(({ type }) => type === GOAWAY).map(({ payload }) => payload.readUInt32BE(0));
}

/** A connection on which a call runs that the shim handles itself, so that it outlives the backend. */
function withHandledCall(): ReturnType<typeof openProxy> {
  const proxy = openProxy();
  proxy.client.send(headers(1, request('/handle/A')));
  proxy.client.take();
  return proxy;
}

// grpc-go ends a connection whose GOAWAY names a later stream than the one before it, and with it the calls that still
// run.
describe('last stream ids of successive GOAWAY frames (RFC 9113 6.8)', () => {
  test('a later GOAWAY names no higher stream if the backend sends GOAWAY and then closes', () => {
    const { client, backend } = withHandledCall();
    backend.send(goaway(1, 0));
    client.send(headers(3, request('/pass/B'), true));
    backend.events.closed(undefined);
    expect(lastStreams(client.take())).toEqual([1, 1]);
  });

  test('a later GOAWAY names no higher stream if the backend sends GOAWAY and then the shim is stopped', () => {
    const { client, backend, core } = withHandledCall();
    backend.send(goaway(1, 0));
    client.send(headers(3, request('/pass/B'), true));
    core.shutdown();
    expect(lastStreams(client.take())).toEqual([1, 1]);
  });

  test('a later GOAWAY names no higher stream if the backend closes and then the shim is stopped', () => {
    const { client, backend, core } = withHandledCall();
    backend.events.closed(undefined);
    client.send(headers(3, request('/pass/B'), true));
    core.shutdown();
    expect(lastStreams(client.take())).toEqual([1, 1]);
  });

  test('a later GOAWAY names no higher stream if the backend closes between the two GOAWAY frames of a graceful shutdown', () => {
    const { client, backend, core } = withHandledCall();
    core.shutdown();
    backend.events.closed(undefined);
    client.send(headers(3, request('/pass/B'), true), CLIENT_HAS_GOAWAY);
    expect(lastStreams(client.take())).toEqual([2 ** 31 - 1, 1, 1]);
  });

  test('a later GOAWAY names no higher stream if the shim is stopped and then the backend begins a graceful shutdown', () => {
    const { client, backend, core } = withHandledCall();
    core.shutdown();
    client.send(CLIENT_HAS_GOAWAY);
    backend.send(goaway(2 ** 31 - 1, 0));
    expect(lastStreams(client.take())).toEqual([2 ** 31 - 1, 1, 1]);
  });

  test('a later GOAWAY names no higher stream if the backend closes and then the client violates the protocol', () => {
    const { client, backend } = withHandledCall();
    backend.events.closed(undefined);
    client.send(headers(3, request('/pass/B'), true), data(7, Buffer.from('no such stream')));
    expect(lastStreams(client.take())).toEqual([1, 1]);
  });
});
