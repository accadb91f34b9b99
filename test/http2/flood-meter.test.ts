import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../src/http2/errors.ts';
import { FloodMeter } from '../../src/http2/flood-meter.ts';
import { LARGEST_WINDOW } from '../../src/http2/frame.ts';
import {
  CONTINUATION,
  data,
  frame,
  goawayOf,
  HEADERS,
  headers,
  openProxy,
  PING,
  RESPONSE,
  request,
  rst,
  settings,
  windowUpdate,
  withStream,
} from '../support/http2/wire.ts';

describe('floods by a client', () => {
  test.each([
    ['empty CONTINUATION frames', frame(CONTINUATION, 0, 3), frame(HEADERS, 0, 3)],
    ['PING', frame(PING, 0, 0, Buffer.alloc(8)), Buffer.alloc(0)],
    ['SETTINGS', settings([4, 70_000]), Buffer.alloc(0)],
  ])('a flood of %s ends the connection with ENHANCE_YOUR_CALM', (_, repeated, first) => {
    const proxy = withStream();
    proxy.client.send(first);
    for (let sent = 0; sent < 200 && !proxy.client.ended; sent += 1)
      proxy.client.send(Buffer.concat(Array.from({ length: 100 }, () => repeated)));
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('a flood of streams that are opened and reset at once (CVE-2023-44487) ends the connection', () => {
    const proxy = openProxy();
    for (let id = 1; id < 40_000 && !proxy.client.ended; id += 2)
      proxy.client.send(headers(id, request('/pass'), true), rst(id, ErrorCode.CANCEL));
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test.each([
    ['a window of 0', (id: number) => windowUpdate(id, 0)],
    ['a window that is too large', (id: number) => windowUpdate(id, LARGEST_WINDOW)],
    ['DATA after its end', (id: number) => data(id, Buffer.of(1))],
    ['HEADERS after its end', (id: number) => headers(id, [{ name: 'a', value: 'b' }], true)],
  ])(
    'a flood of streams that the client makes the proxy reset (CVE-2025-8671), with %s, ends the connection',
    (_, error) => {
      const proxy = openProxy();
      for (let id = 1; id < 40_000 && !proxy.client.ended; id += 2)
        proxy.client.send(headers(id, request('/pass'), true), error(id));
      expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
    },
  );

  test('a flood of streams above the stream limit ends the connection', () => {
    const proxy = openProxy({ streamLimit: 1 });
    for (let id = 1; id < 40_000 && !proxy.client.ended; id += 2) proxy.client.send(headers(id, request('/pass')));
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test.each(['/amend/A', '/handle/A'])('a request in DATA frames of one byte ends the connection: %s', (path) => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request(path)));
    for (let sent = 0; sent < 200 && !proxy.client.ended; sent += 1)
      proxy.client.send(Buffer.concat(Array.from({ length: 100 }, () => data(1, Buffer.of(1)))));
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('DATA frames of one byte do not count in a call that is forwarded unread', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A')));
    for (let sent = 0; sent < 200; sent += 1)
      proxy.client.send(Buffer.concat(Array.from({ length: 100 }, () => data(1, Buffer.of(1)))));
    expect(proxy.client.ended).toBe(false);
  });

  test('a header block larger than the limit ends the connection', () => {
    const proxy = openProxy({ clientHeaderListLimit: 50_000 });
    proxy.client.send(frame(HEADERS, 0, 1, Buffer.alloc(16_000)));
    for (let sent = 0; sent < 4 && !proxy.client.ended; sent += 1)
      proxy.client.send(frame(CONTINUATION, 0, 1, Buffer.alloc(16_000)));
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('pings of a busy client over time, or between responses, do not count as a flood', () => {
    const ping = frame(PING, 0, 0, Buffer.alloc(8));
    const proxy = withStream();
    for (let sent = 0; sent < 30_000; sent += 1) {
      proxy.clock += 0.2;
      proxy.client.send(ping);
    }
    proxy.backend.send(headers(1, RESPONSE));
    for (let sent = 0; sent < 30_000; sent += 1) {
      proxy.backend.send(data(1, Buffer.of(1)));
      proxy.client.send(ping);
    }
    expect(proxy.client.ended).toBe(false);
    expect(proxy.client.take().filter(({ type }) => type === PING)).toHaveLength(60_000);
  });
});

test('the credit for frames of a time without reads is used once, and a reset does not remove it', () => {
  const meter = new FloodMeter('small', 100, () => 5000);
  const count = (frames: number): void => {
    for (let counted = 0; counted < frames; counted += 1) meter.count();
  };
  count(100);
  meter.credit(3000);
  meter.reset();
  count(300);
  expect(() => count(1)).toThrow('too many small frames');
});

test('a pause of an hour allows no more frames than a pause of three seconds', () => {
  const meter = new FloodMeter('small', 100, () => 0);
  meter.credit(3_600_000);
  for (let counted = 0; counted < 400; counted += 1) meter.count();
  expect(() => meter.count()).toThrow('too many small frames');
});
