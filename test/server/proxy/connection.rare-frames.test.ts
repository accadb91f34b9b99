import { describe, expect, test, vi } from 'vitest';
import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  HEADERS,
  OK,
  PADDED,
  PING,
  PRIORITY,
  RESPONSE,
  SETTINGS_ACK,
  frame,
  headers,
  openProxy,
  request,
  rst,
  settings,
  typesOf,
  withStream,
} from '../../support/http2/wire.ts';

describe('valid but rare frames', () => {
  test('HEADERS with padding, priority and CONTINUATION are forwarded as one frame', () => {
    const plain = headers(1, request('/pass/rare')).subarray(9);
    const forms = [
      frame(HEADERS, END_HEADERS | PADDED, 3, Buffer.concat([Buffer.of(4), plain, Buffer.alloc(4)])),
      frame(HEADERS, END_HEADERS | 0x20, 5, Buffer.concat([Buffer.alloc(5), plain])),
      frame(
        HEADERS,
        END_HEADERS | 0x20 | PADDED,
        7,
        Buffer.concat([Buffer.of(2), Buffer.alloc(5), plain, Buffer.alloc(2)]),
      ),
      Buffer.concat([
        frame(HEADERS, END_STREAM, 9, plain.subarray(0, 3)),
        ...Array.from(plain.subarray(3), (octet) => frame(CONTINUATION, 0, 9, Buffer.of(octet))),
        frame(CONTINUATION, END_HEADERS, 9),
      ]),
    ];
    const proxy = withStream('/pass/first', true);
    for (const form of forms) {
      proxy.client.send(form);
      const [seen, ...others] = proxy.backend.take();
      expect(others).toEqual([]);
      expect(seen!.payload).toEqual(plain);
      expect(seen!.flags & END_STREAM).toBe(form[4]! & END_STREAM);
    }
  });

  test("a header block larger than the backend's maximum frame size is split", () => {
    const proxy = withStream('/pass/first', true);
    const long = [...request('/pass/long'), { name: 'x-long', value: 'x'.repeat(30_000) }];
    const plain = headers(3, long).subarray(9);
    proxy.client.send(
      frame(HEADERS, 0, 3, plain.subarray(0, 16_000)),
      frame(CONTINUATION, END_HEADERS, 3, plain.subarray(16_000)),
    );
    const seen = proxy.backend.take();
    expect(typesOf(seen)).toEqual([HEADERS, CONTINUATION]);
    expect(seen.map(({ payload }) => payload.length <= 16_384)).toEqual([true, true]);
    expect(Buffer.concat(seen.map(({ payload }) => payload))).toEqual(plain);
  });

  test('a larger maximum frame size of the backend applies once the client has acknowledged it', () => {
    const proxy = withStream('/pass/first', true);
    const long = [...request('/pass/long'), { name: 'x-long', value: 'x'.repeat(30_000) }];
    proxy.backend.send(settings([5, 40_000]));
    for (const [id, expected] of [
      [3, [HEADERS, CONTINUATION]],
      [5, [HEADERS]],
    ] as const) {
      proxy.client.send(headers(id, long, true));
      expect(typesOf(proxy.backend.take())).toEqual(expected);
      proxy.client.send(SETTINGS_ACK);
      proxy.backend.take();
    }
  });

  test('a response with CONTINUATION is forwarded unchanged, with no frame in between', () => {
    const proxy = withStream('/pass/A', true);
    const block = headers(1, RESPONSE).subarray(9);
    proxy.backend.send(frame(HEADERS, 0, 1, block.subarray(0, 1)));
    proxy.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(typesOf(proxy.client.take())).toEqual([PING]);
    proxy.backend.send(frame(CONTINUATION, END_HEADERS, 1, block.subarray(1)));
    expect(typesOf(proxy.client.take())).toEqual([HEADERS, CONTINUATION]);
  });

  test('PRIORITY and unknown frames are ignored', () => {
    const proxy = withStream();
    proxy.client.send(frame(PRIORITY, 0, 1, Buffer.alloc(5)), frame(0x77, 0xff, 1, Buffer.alloc(9)), frame(16, 0, 0));
    proxy.backend.send(frame(0x77, 0xff, 1, Buffer.alloc(9)));
    expect(proxy.backend.take()).toEqual([]);
    expect(proxy.client.take()).toEqual([]);
  });

  test('padded DATA and a response that ends before its request are forwarded unchanged', () => {
    const proxy = withStream();
    const early = [
      headers(1, RESPONSE),
      frame(DATA, PADDED, 1, Buffer.of(3, 7, 8, 0, 0, 0)),
      headers(1, OK, true),
      rst(1, 0),
    ];
    proxy.backend.send(...early);
    expect(proxy.client.takeBytes()).toEqual(Buffer.concat(early));
    expect(proxy.events).toEqual(['/pass/A pass answered 0']);
  });
});

describe('pings from client, backend and local server', () => {
  test('pings are answered with the next burst of frames, or after a delay', () => {
    vi.useFakeTimers();
    const proxy = openProxy({ deferredWriteDelay: 1 });
    proxy.client.send(headers(1, request('/pass/A'), true));
    proxy.backend.take();
    proxy.client.writes = 0;
    const ping = frame(PING, 0, 0, Buffer.from('12345678'));
    proxy.client.send(ping, ping);
    expect(proxy.client.take()).toEqual([]);
    proxy.backend.send(ping, headers(1, RESPONSE));
    expect(typesOf(proxy.client.take())).toEqual([PING, PING, HEADERS]);
    expect(proxy.client.writes).toBe(1);
    expect(proxy.backend.take()).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(typesOf(proxy.backend.take())).toEqual([PING]);
    proxy.client.send(ping);
    proxy.core.shutdown();
    expect(typesOf(proxy.client.take())).toContain(PING);
    vi.useRealTimers();
  });

  test('pings are answered with their own opaque data', () => {
    const proxy = withStream('/handle/A');
    const local = proxy.locals[0]!;
    local.send(settings());
    local.take();
    for (const side of [proxy.client, proxy.backend, local]) {
      const opaque = Buffer.from('12345678');
      side.send(frame(PING, 0, 0, opaque));
      expect(side.take()).toEqual([{ type: PING, flags: 1, id: 0, payload: opaque }]);
      side.send(frame(PING, 1, 0, opaque));
    }
    for (const side of [proxy.client, proxy.backend, local]) expect(side.take()).toEqual([]);
  });
});
