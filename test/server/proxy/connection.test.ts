import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import {
  GOAWAY,
  HEADERS,
  OK,
  PING,
  PREFACE,
  RESPONSE,
  RST_STREAM,
  SETTINGS,
  SETTINGS_ACK,
  WINDOW_UPDATE,
  data,
  frame,
  headers,
  startProxy,
  message,
  openProxy,
  request,
  rst,
  settings,
  typesOf,
  u32,
  windowUpdate,
} from '../../support/http2/wire.ts';

afterEach(() => void vi.useRealTimers());

describe('connection setup', () => {
  test('SETTINGS of both ends are forwarded and acknowledged once, except header table size and push', () => {
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings([1, 65_536], [2, 1], [4, 70_000], [6, 1000], [99, 7]));
    expect(proxy.client.take()).toEqual([]);
    const [toBackend, ...more] = proxy.backend.take();
    expect(more).toEqual([]);
    expect(toBackend!.payload).toEqual(settings([1, 0], [2, 0], [4, 70_000], [6, 1000], [99, 7]).subarray(9));
    proxy.backend.send(settings([1, 1_000_000], [3, 100]), SETTINGS_ACK);
    const [toClient, ack, ...others] = proxy.client.take();
    expect(others).toEqual([]);
    expect(toClient!.payload).toEqual(settings([3, 100]).subarray(9));
    expect([ack!.type, ack!.flags]).toEqual([SETTINGS, 1]);
    // The surplus acknowledgement is not forwarded.
    proxy.client.send(SETTINGS_ACK, SETTINGS_ACK);
    expect(proxy.backend.take().map(({ type, flags }) => [type, flags])).toEqual([[SETTINGS, 1]]);
    proxy.client.send(settings([1, 100], [2, 0], [4, 1]));
    expect(proxy.backend.take()[0]!.payload).toEqual(settings([4, 1]).subarray(9));
  });

  test("the client's largest frame size is not forwarded: the proxy reads frames of the default size from the backend", () => {
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings([5, 65_536], [6, 1000]));
    expect(proxy.backend.take()[0]!.payload).toEqual(settings([1, 0], [2, 0], [6, 1000]).subarray(9));
    proxy.backend.send(settings(), SETTINGS_ACK);
    proxy.client.send(settings([5, 32_768]));
    expect(proxy.backend.take()[0]!.payload).toEqual(settings().subarray(9));
  });

  test("frames of the client wait for the backend's SETTINGS", () => {
    const proxy = startProxy();
    proxy.client.send(
      PREFACE,
      settings(),
      headers(1, request('/pass/A'), true),
      headers(3, request('/handle/B'), true),
    );
    expect(typesOf(proxy.backend.take())).toEqual([SETTINGS]);
    expect(proxy.client.paused).toBe(true);
    expect(proxy.locals).toEqual([]);
    proxy.backend.send(settings());
    expect(proxy.client.paused).toBe(false);
    expect(typesOf(proxy.client.take())).toEqual([SETTINGS]);
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    expect(typesOf(proxy.locals[0]!.take())).toEqual([SETTINGS, WINDOW_UPDATE, HEADERS]);
  });

  test('output does not depend on how the bytes of the client are split into chunks', () => {
    const input = Buffer.concat([
      PREFACE,
      settings([4, 100]),
      headers(1, request('/pass/A')),
      headers(3, request('/handle/B')),
      data(1, Buffer.alloc(500, 'a')),
      data(3, Buffer.alloc(500, 'b'), true),
      frame(PING, 0, 0, Buffer.alloc(8, 'p')),
      headers(5, request('/amend/C')),
      data(5, message(Buffer.from('c')), true),
      rst(1, 8),
    ]);
    const run = (places: readonly number[]): string[] => {
      const proxy = startProxy();
      proxy.backend.send(settings());
      const ends = [...places, input.length].sort((a, b) => a - b);
      ends.forEach((end, index) => proxy.client.send(input.subarray(ends[index - 1] ?? 0, end)));
      const control = new Set([WINDOW_UPDATE]);
      return [proxy.client, proxy.backend, proxy.locals[0]!].map((end) =>
        end
          .take()
          .filter(({ type }) => !control.has(type))
          .map(({ type, flags, id, payload }) => `${type} ${flags} ${id} ${payload.toString('hex')}`)
          .join('\n'),
      );
    };
    const expected = run([]);
    fc.assert(
      fc.property(fc.array(fc.nat(input.length), { maxLength: 60 }), (places) => {
        expect(run(places)).toEqual(expected);
      }),
    );
  });
});

describe('the client disconnects', () => {
  test('both servers are notified when the client disconnects', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A')), headers(3, request('/handle/B')));
    proxy.client.events.closed(undefined);
    const local = proxy.locals[0]!;
    expect(local.take().at(-1)).toEqual({ type: RST_STREAM, flags: 0, id: 3, payload: u32(ErrorCode.CANCEL) });
    expect(local.ended).toBe(true);
    expect(proxy.backend.ended).toBe(true);
    expect(proxy.client.destroyed).toBe(true);
    expect(proxy.events).toEqual(['/pass/A pass cancelled undefined', '/handle/B handle cancelled undefined']);
  });

  test('a peer that does not close its end is disconnected', () => {
    vi.useFakeTimers();
    const proxy = openProxy();
    proxy.core.shutdown();
    proxy.client.send(frame(PING, 1, 0, Buffer.from('shutdown')));
    expect([proxy.client.ended, proxy.client.destroyed]).toEqual([true, false]);
    vi.advanceTimersByTime(5000);
    expect([proxy.client.destroyed, proxy.backend.destroyed]).toEqual([true, true]);
  });
});

describe('a burst of frames', () => {
  test('a burst of frames is forwarded unchanged, in one write', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/pass/A'), true), headers(3, request('/pass/B'), true));
    proxy.client.writes = 0;
    proxy.backend.writes = 0;
    const burst = [headers(1, RESPONSE), data(1, Buffer.alloc(9000, 1)), headers(1, OK, true), headers(3, RESPONSE)];
    proxy.backend.send(...burst);
    expect([proxy.client.writes, proxy.backend.writes]).toEqual([1, 0]);
    expect(proxy.client.takeBytes()).toEqual(Buffer.concat(burst));
  });
});

describe('errors during error handling', () => {
  test('a backend lost while the SETTINGS of the client are invalid ends one connection, not the process', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/handle/A')), windowUpdate(1, 2 ** 31 - 1 - 65_535), settings([4, 70_000]));
    proxy.client.take();
    proxy.backend.events.closed(undefined);
    const seen = proxy.client.take().find(({ type }) => type === GOAWAY)!;
    expect(seen.payload.readUInt32BE(4)).toBe(ErrorCode.FLOW_CONTROL_ERROR);
    expect(proxy.client.ended).toBe(true);
  });

  test('a route that throws ends one connection with INTERNAL_ERROR', () => {
    const proxy = openProxy({
      route: () => {
        throw new Error('a mistake');
      },
    });
    proxy.client.send(headers(1, request('/pass/A')));
    const seen = proxy.client.take().find(({ type }) => type === GOAWAY)!;
    expect(seen.payload.readUInt32BE(4)).toBe(ErrorCode.INTERNAL_ERROR);
    expect(proxy.events).toEqual([`error client ${ErrorCode.INTERNAL_ERROR} a mistake`]);
    expect([proxy.client.ended, proxy.backend.ended]).toEqual([true, true]);
  });
});
