import { Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { LIMITS, refuseConnection, SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import { emptyTally, play } from '../../fuzz/proxy/engine.ts';
import {
  CONTINUATION,
  DATA,
  data,
  END_HEADERS,
  END_STREAM,
  fieldsOf,
  frame,
  GOAWAY,
  goawayOf,
  HEADERS,
  headers,
  message,
  OK,
  openProxy,
  PADDED,
  PING,
  PREFACE,
  PRIORITY,
  RESPONSE,
  RST_STREAM,
  request,
  rst,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  startProxy,
  typesOf,
  u32,
  WINDOW_UPDATE,
  windowUpdate,
  withStream,
} from '../../support/http2/wire.ts';

describe('setup and end of a connection', () => {
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
});

// The suite `fuzz` plays more inputs. To repeat a failed input, use `--target proxy --seed 20250101 --only INDEX`.
test('20,000 mutated conversations cause no crash and leak nothing', async () => {
  const tally = emptyTally();
  for (let index = 0; index < 20_000; index += 1) {
    await play(20_250_101, index, tally).catch((error: unknown) => {
      throw new Error(`input ${index}`, { cause: error });
    });
  }
  // The inputs reach relevant states: not all fail at the first frame, and each side has protocol errors.
  expect(tally.inputs).toBe(20_000);
  expect(tally.survived).toBeGreaterThan(2000);
  expect(tally.amended).toBeGreaterThan(5000);
  expect(tally.handled).toBeGreaterThan(1000);
  expect(tally.delayed).toBeGreaterThan(4500);
  for (const count of [tally.clientErrors, tally.backendErrors, tally.localErrors]) expect(count).toBeGreaterThan(500);
});

describe('limits of a connection', () => {
  beforeEach(() => void vi.useFakeTimers());

  afterEach(() => void vi.useRealTimers());

  const failure = (code: string): Error => Object.assign(new Error(`connect ${code} /run/x.sock`), { code });
  const messageOf = (proxy: ReturnType<typeof openProxy>): string | undefined =>
    fieldsOf(proxy.client.take().find(({ type }) => type === HEADERS)!)['grpc-message'];

  describe('L2: a client that has connected', () => {
    test('a client that sends nothing is disconnected at the handshake timeout', () => {
      const proxy = startProxy();
      vi.advanceTimersByTime(LIMITS.handshakeTimeout - 1);
      expect(proxy.client.destroyed).toBe(false);
      vi.advanceTimersByTime(1);
      expect([proxy.client.destroyed, proxy.backend.destroyed]).toEqual([true, true]);
      expect(proxy.events).toEqual(['refused handshake']);
    });

    test('a client that uses HTTP/2 may be idle for days, as kubelet is', () => {
      const proxy = openProxy();
      vi.advanceTimersByTime(7 * 86_400_000);
      expect([proxy.client.ended, proxy.client.destroyed, proxy.events]).toEqual([false, false, []]);
    });

    test('a call gets the cause, not the loss of the backend, if the shim has no file descriptor for the backend', () => {
      const proxy = startProxy();
      proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
      proxy.backend.events.closed(failure('EMFILE'));
      expect(messageOf(proxy)).toMatch(/^cri-resize-shim has no free file descriptor \(EMFILE\)/);
      expect(proxy.events[0]).toMatch(/^descriptor: /);
    });
  });

  describe('a call whose backend goes away', () => {
    test.each([
      ['/pass/A', false],
      ['/pass/A', true],
      ['/amend/A', false],
      ['/amend/A', true],
      ['/each/A', false],
      ['/each/A', true],
    ])(
      'a call ends with the message of grpc-go’s client when its backend goes away: %s, response begun: %s',
      (path, begun) => {
        const proxy = openProxy();
        proxy.client.send(headers(1, request(path), true));
        if (begun) proxy.backend.send(headers(1, RESPONSE), data(1, message(Buffer.alloc(9)).subarray(0, 7)));
        proxy.backend.events.closed(undefined);
        const last = proxy.client
          .take()
          .filter(({ type, id }) => type === HEADERS && id === 1)
          .at(-1);
        expect(fieldsOf(last!)).toMatchObject({
          'grpc-status': '14',
          'grpc-message': 'error reading from server: EOF',
        });
      },
    );
  });

  describe('a connection that ends because there are too many', () => {
    test('a connection that ends because there are too many sends GOAWAY, so that the client knows which calls it can retry', () => {
      const proxy = openProxy();
      proxy.client.send(headers(1, request('/pass/A'), true));
      proxy.backend.send(headers(1, [...RESPONSE, ...OK], true));
      proxy.client.take();
      proxy.core.end('too many connections');
      expect(goawayOf(proxy.client.take())).toMatchObject({ last: 1, code: ErrorCode.NO_ERROR });
      expect([proxy.client.ended, proxy.backend.ended, proxy.client.destroyed]).toEqual([true, true, false]);
      // A call that was under way is not forwarded.
      proxy.client.send(headers(3, request('/pass/A'), true));
      vi.advanceTimersByTime(LIMITS.lingerTimeout);
      expect([proxy.client.destroyed, proxy.backend.destroyed]).toEqual([true, true]);
    });

    test('a connection that ends because there are too many sends SETTINGS before GOAWAY if it has not sent them yet', () => {
      const proxy = startProxy();
      proxy.client.send(PREFACE, settings());
      proxy.core.end('too many connections');
      expect(typesOf(proxy.client.take())).toEqual([SETTINGS, GOAWAY]);
    });
  });

  test('refused connections linger within the limit of all lingering connections', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, lingering: 3 });
    const clients = Array.from({ length: 5 }, () => new Socket());
    for (const client of clients) refuseConnection(client, shared);
    expect(clients.map(({ destroyed }) => destroyed)).toEqual([true, true, false, false, false]);
    vi.advanceTimersByTime(LIMITS.lingerTimeout);
    expect(clients.map(({ destroyed }) => destroyed)).toEqual([true, true, true, true, true]);
    expect(shared.lingering.count).toBe(0);
  });

  describe('connections whose peers close slowly', () => {
    test('above the limit of connections that close slowly, the one that has waited longest is destroyed', () => {
      const shared = new SharedBudget({ ...SHARED_LIMITS, lingering: 3 });
      const proxies = Array.from({ length: 5 }, () => openProxy({ shared }));
      for (const proxy of proxies) proxy.client.events.closed(undefined);
      expect(proxies.map(({ backend }) => backend.destroyed)).toEqual([true, true, false, false, false]);
      expect(shared.lingering.count).toBe(3);
      vi.advanceTimersByTime(LIMITS.lingerTimeout);
      expect(proxies.map(({ backend }) => backend.destroyed)).toEqual([true, true, true, true, true]);
      expect(shared.lingering.count).toBe(0);
    });

    test('above the limit of connections that close slowly, those with unread answers are destroyed last', () => {
      const shared = new SharedBudget({ ...SHARED_LIMITS, lingering: 2 });
      const proxies = Array.from({ length: 4 }, () => openProxy({ shared }));
      const destroyed = (): boolean[] => proxies.map(({ client }) => client.destroyed);
      for (const proxy of [proxies[0]!, proxies[2]!, proxies[3]!]) proxy.client.backlog = 1;
      for (const proxy of proxies.slice(0, 3)) proxy.core.end('too many connections');
      expect(destroyed()).toEqual([false, true, false, false]);
      proxies[3]!.core.end('too many connections');
      expect(destroyed()).toEqual([true, true, false, false]);
    });
  });

  describe('a connection that is closed while its client has answers to read', () => {
    test('a closed connection stays until its client has read its answers', () => {
      const { client, core } = openProxy();
      client.backlog = 70_000;
      core.end('too many connections');
      vi.advanceTimersByTime(20 * LIMITS.lingerTimeout);
      expect(client.destroyed).toBe(false);
      client.backlog = 0;
      vi.advanceTimersByTime(LIMITS.lingerTimeout);
      expect(client.destroyed).toBe(true);
    });

    test('a closed connection is destroyed after a timeout if its client reads no answers', () => {
      const { client, core } = openProxy();
      client.backlog = 70_000;
      core.end('too many connections');
      vi.advanceTimersByTime(LIMITS.deliveryTimeout - 1);
      expect(client.destroyed).toBe(false);
      vi.advanceTimersByTime(1);
      expect(client.destroyed).toBe(true);
    });
  });
});

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

  test('small increments of the connection window wait for the next burst, up to 8 KiB together', () => {
    const proxy = openProxy({ deferredWriteDelay: 1000 });
    proxy.backend.send(windowUpdate(0, 8000), windowUpdate(0, 191));
    expect(proxy.client.take()).toEqual([]);
    proxy.backend.send(windowUpdate(0, 1));
    expect(proxy.client.take().map(({ payload }) => payload.readUInt32BE(0))).toEqual([8191, 1]);
    proxy.backend.send(windowUpdate(0, 5));
    proxy.client.send(headers(1, request('/pass/A'), true));
    proxy.backend.send(headers(1, OK, true));
    expect(typesOf(proxy.client.take())).toEqual([WINDOW_UPDATE, HEADERS]);
    proxy.backend.send(windowUpdate(0, 8192));
    expect(typesOf(proxy.client.take())).toEqual([WINDOW_UPDATE]);
    proxy.core.destroy();
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
