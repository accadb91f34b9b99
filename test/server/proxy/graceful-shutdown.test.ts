import { afterEach, describe, expect, test, vi } from 'vitest';
import type { SeenFrame } from '../../support/http2/wire.ts';
import {
  GOAWAY,
  HEADERS,
  OK,
  PING,
  PREFACE,
  RESPONSE,
  SETTINGS,
  data,
  fieldsOf,
  frame,
  headers,
  startProxy,
  message,
  openProxy,
  request,
  settings,
  typesOf,
} from '../../support/http2/wire.ts';

afterEach(() => void vi.useRealTimers());

describe('graceful shutdown', () => {
  const last = 2 ** 31 - 1;
  const shutdownPing = frame(PING, 1, 0, Buffer.from('shutdown'));
  const numbersOf = (frames: readonly SeenFrame[]) =>
    frames.filter(({ type }) => type === GOAWAY).map(({ payload }) => payload.readUInt32BE(0));

  test('sends GOAWAY, serves the streams that the client has opened before it received that, then closes both ends', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A')), headers(3, request('/handle/B')));
    proxy.client.take();
    proxy.core.shutdown();
    const sent = proxy.client.take();
    expect(typesOf(sent)).toEqual([GOAWAY, PING]);
    expect(numbersOf(sent)).toEqual([last]);
    expect(sent[1]!.flags).toBe(0);
    proxy.backend.take();
    // The client has sent this stream before it received GOAWAY.
    proxy.client.send(headers(5, request('/pass/C'), true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    proxy.client.send(frame(PING, 1, 0, Buffer.from('12345678')));
    expect(proxy.client.take()).toEqual([]);
    proxy.client.send(shutdownPing);
    expect(numbersOf(proxy.client.take())).toEqual([5]);
    proxy.client.send(headers(7, request('/pass/D'), true));
    expect(proxy.backend.take()).toEqual([]);
    for (const id of [1, 5]) proxy.backend.send(headers(id, RESPONSE), headers(id, OK, true));
    expect(proxy.client.ended).toBe(false);
    proxy.locals[0]!.send(settings(), headers(3, RESPONSE), headers(3, OK, true));
    expect(proxy.client.ended).toBe(true);
    expect(proxy.backend.ended).toBe(true);
    expect(proxy.locals[0]!.ended).toBe(true);
  });

  test('closes an idle connection once the client has acknowledged the PING', () => {
    const proxy = openProxy();
    proxy.core.shutdown();
    proxy.core.shutdown();
    expect(typesOf(proxy.client.take())).toEqual([GOAWAY, PING]);
    expect(proxy.client.ended).toBe(false);
    proxy.client.send(shutdownPing);
    expect(numbersOf(proxy.client.take())).toEqual([0]);
    expect(proxy.client.ended).toBe(true);
  });

  test('sends the last stream id after a timeout if the client does not acknowledge the PING', () => {
    vi.useFakeTimers();
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A')));
    proxy.core.shutdown();
    proxy.client.take();
    vi.advanceTimersByTime(1000);
    expect(numbersOf(proxy.client.take())).toEqual([1]);
    proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(proxy.client.ended).toBe(true);
  });

  test('serves a connection that is still opening first, because its client would report a failure', () => {
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
    proxy.core.shutdown();
    expect(proxy.client.ended).toBe(false);
    proxy.backend.send(settings());
    expect(typesOf(proxy.client.take())).toEqual([SETTINGS, GOAWAY, PING]);
    proxy.client.send(shutdownPing);
    expect(numbersOf(proxy.client.take())).toEqual([1]);
    proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(typesOf(proxy.client.take())).toEqual([HEADERS, HEADERS]);
    expect(proxy.client.ended).toBe(true);
  });

  test('ends a watch with UNAVAILABLE when no other stream runs', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/Watch'), true), headers(3, request('/pass/A'), true));
    proxy.backend.send(headers(1, RESPONSE), data(1, message(Buffer.from('event'))));
    proxy.core.shutdown();
    proxy.client.send(shutdownPing);
    proxy.client.take();
    expect(proxy.client.ended).toBe(false);
    proxy.backend.send(headers(3, RESPONSE), headers(3, OK, true));
    const frames = proxy.client.take();
    expect(frames.map(({ id }) => id)).toEqual([3, 3, 1]);
    expect(fieldsOf(frames[2]!)).toMatchObject({
      'grpc-status': '14',
      'grpc-message': 'cri-resize-shim is being restarted: call again',
    });
    expect(proxy.client.ended).toBe(true);
    expect(proxy.events).toContain('/pass/Watch pass unavailable 14');
  });
});
