import { afterEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import { HeaderField } from '../../../src/http2/hpack/field.ts';
import { plainCall } from '../../../src/server/proxy/handling.ts';
import type { HandledAnswer, HandledCall } from '../../../src/server/proxy/interception.ts';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import type { LocalStream } from '../../../src/server/proxy/stream.ts';
import type { TestProxy, TestProxyOptions } from '../../support/http2/wire.ts';
import {
  DATA,
  data,
  dataOf,
  fieldsOf,
  frame,
  GOAWAY,
  goawayOf,
  HEADERS,
  headers,
  message,
  openProxy,
  RST_STREAM,
  request,
  resetsOf,
  rst,
  settings,
  settled,
  typesOf,
  u32,
  WINDOW_UPDATE,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

describe('handled calls', () => {
  afterEach(() => void vi.useRealTimers());

  interface Served {
    readonly call: HandledCall;
    readonly respond: (answer: HandledAnswer) => void;
  }

  /** Returns an open proxy that serves handled calls itself, and the calls that it has started. */
  function serving(options: TestProxyOptions = {}, ...clientSettings: [id: number, value: number][]) {
    const calls: Served[] = [];
    const proxy = openProxy(
      { handle: (call, respond) => void calls.push({ call, respond }), ...options },
      ...clientSettings,
    );
    return Object.assign(proxy, { calls });
  }

  const HELLO = Buffer.from('hello');
  const call = (proxy: TestProxy, id: number, extra: { name: string; value: string }[] = []): void =>
    proxy.client.send(headers(id, request('/handle/A', extra)), data(id, message(HELLO), true));
  const NOT_FOUND: HandledAnswer = { code: 5, details: 'no 100 % of ü', trailers: [['x-bytes-bin', 'AAE=']] };

  describe('a handled call', () => {
    test('a handled call is served without a connection to the local server', async () => {
      const proxy = serving();
      call(proxy, 1, [{ name: 'x-user', value: 'kubelet' }]);
      expect(proxy.calls).toHaveLength(1);
      const [{ call: seen, respond }] = proxy.calls as [Served];
      expect([seen.path, seen.request.toString(), seen.deadline, seen.cancelled]).toEqual([
        '/handle/A',
        'hello',
        Infinity,
        false,
      ]);
      expect(seen.headers.map(({ name, value }) => [name, value])).toEqual([
        ['content-type', 'application/grpc'],
        ['te', 'trailers'],
        ['x-user', 'kubelet'],
      ]);
      respond(Buffer.from('world'));
      await settled();
      const frames = proxy.client.take().filter(({ id }) => id === 1);
      expect(typesOf(frames)).toEqual([HEADERS, DATA, HEADERS]);
      expect(fieldsOf(frames[0]!)).toMatchObject({ ':status': '200', 'content-type': 'application/grpc+proto' });
      expect(dataOf(frames, 1)).toEqual(message(Buffer.from('world')));
      expect(fieldsOf(frames[2]!)).toEqual({ 'grpc-status': '0', 'grpc-message': 'OK' });
      expect(proxy.locals).toEqual([]);
      expect(proxy.events).toEqual(['/handle/A handle answered 0']);
      expect(proxy.core.streams.count).toBe(0);
    });

    test('a handled call that fails ends with its status, message and trailers', async () => {
      const proxy = serving();
      call(proxy, 1);
      proxy.calls[0]!.respond(NOT_FOUND);
      await settled();
      const frames = proxy.client.take().filter(({ id }) => id === 1);
      expect(typesOf(frames)).toEqual([HEADERS]);
      expect(fieldsOf(frames[0]!)).toEqual({
        ':status': '200',
        'content-type': 'application/grpc+proto',
        'grpc-status': '5',
        'grpc-message': 'no 100 %25 of %C3%BC',
        'x-bytes-bin': 'AAE=',
      });
      expect(proxy.events).toEqual(['/handle/A handle answered 5']);
    });

    test('a handled call accepts its request in parts and returns their window at once', () => {
      const proxy = serving();
      const whole = message(Buffer.alloc(40_000, 'r'));
      proxy.client.send(headers(1, request('/handle/A')));
      for (let at = 0; at < whole.length; at += 7000) proxy.client.send(data(1, whole.subarray(at, at + 7000)));
      expect(proxy.calls).toHaveLength(0);
      const returned = proxy.client.take().filter(({ type, id }) => type === WINDOW_UPDATE && id === 1);
      expect(returned.reduce((sum, { payload }) => sum + payload.readUInt32BE(0), 0)).toBe(whole.length);
      // Trailers end the request, too.
      proxy.client.send(headers(1, [{ name: 'x-end', value: '1' }], true));
      expect(proxy.calls[0]!.call.request.equals(whole.subarray(5))).toBe(true);
      expect(proxy.core.options.shared.requests.total).toBe(0);
    });

    test('handled calls that are answered at the same time are answered in one write', async () => {
      const proxy = serving();
      call(proxy, 1);
      call(proxy, 3);
      const { writes } = proxy.client;
      for (const { respond } of proxy.calls) respond(HELLO);
      await settled();
      expect(proxy.client.writes).toBe(writes + 1);
    });

    test('the answer of a handled call waits for the windows of the client', async () => {
      const proxy = serving({}, [4, 10]);
      call(proxy, 1);
      proxy.calls[0]!.respond(Buffer.alloc(20, 'x'));
      await settled();
      let frames = proxy.client.take();
      expect(dataOf(frames, 1)).toHaveLength(10);
      expect(proxy.core.streams.running).toBe(1);
      proxy.client.send(windowUpdate(1, 100));
      frames = proxy.client.take();
      expect(dataOf(frames, 1)).toHaveLength(15);
      expect(typesOf(frames.filter(({ id }) => id === 1))).toEqual([DATA, HEADERS]);
      expect(proxy.core.streams.count).toBe(0);
    });

    test('long trailers of a handled call continue in CONTINUATION frames', async () => {
      const proxy = serving();
      call(proxy, 1);
      proxy.calls[0]!.respond({ code: 13, details: 'x'.repeat(40_000), trailers: [] });
      await settled();
      expect(typesOf(proxy.client.take().filter(({ id }) => id === 1))).toEqual([HEADERS, 9, 9]);
    });
  });

  describe('cancellation of a handled call', () => {
    const ends: [string, (proxy: TestProxy) => void][] = [
      ['when the client resets it', (proxy) => proxy.client.send(rst(1, ErrorCode.CANCEL))],
      ['when its connection ends', (proxy) => proxy.client.events.closed(undefined)],
      ['when the client breaks the rules of its stream', (proxy) => proxy.client.send(data(1, HELLO))],
      ['when the shutdown does not wait any longer', (proxy) => proxy.core.destroy()],
    ];
    test.each(ends)('a handled call is cancelled and its answer is ignored %s', async (_, end) => {
      const proxy = serving();
      call(proxy, 1);
      const [{ call: seen, respond }] = proxy.calls as [Served];
      const { signal } = seen;
      end(proxy);
      proxy.client.takeBytes();
      expect([seen.cancelled, signal.aborted]).toEqual([true, true]);
      respond(Buffer.from('late'));
      await settled();
      expect(proxy.client.takeBytes()).toHaveLength(0);
      expect(proxy.core.options.shared.calls.all.beyond).toBe(0);
    });

    test('the signal of a cancelled call is aborted even if it is first read after the cancellation', () => {
      const proxy = serving();
      call(proxy, 1);
      proxy.client.send(rst(1, ErrorCode.CANCEL));
      expect(proxy.calls[0]!.call.signal.aborted).toBe(true);
    });

    test('an answer does not cancel a handled call, so that its handler can still use the signal', async () => {
      const proxy = serving();
      call(proxy, 1);
      const [{ call: seen, respond }] = proxy.calls as [Served];
      respond(HELLO);
      await settled();
      expect([seen.cancelled, seen.signal.aborted]).toEqual([false, false]);
    });
  });

  describe('M5: the deadline', () => {
    const timeout = [{ name: 'grpc-timeout', value: '50m' }];

    test('the deadline ends a running call with DEADLINE_EXCEEDED', async () => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      const proxy = serving();
      proxy.clock = 1000;
      call(proxy, 1, timeout);
      const [{ call: seen, respond }] = proxy.calls as [Served];
      expect(seen.deadline).toBe(1050);
      vi.advanceTimersByTime(49);
      expect(typesOf(proxy.client.take())).not.toContain(HEADERS);
      vi.advanceTimersByTime(1);
      const [answer] = proxy.client.take();
      expect(fieldsOf(answer!)).toMatchObject({ 'grpc-status': '4', 'grpc-message': 'Deadline exceeded' });
      expect([seen.cancelled, seen.signal.aborted]).toEqual([true, true]);
      respond(HELLO);
      await settled();
      expect(proxy.client.take()).toEqual([]);
      expect(proxy.events).toEqual(['/handle/A handle answered 4']);
    });

    test('the deadline ends a call with an incomplete request and drops the rest of the request', () => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      const proxy = serving();
      const whole = message(Buffer.alloc(100));
      proxy.client.send(headers(1, request('/handle/A', timeout)), data(1, whole.subarray(0, 60)));
      vi.advanceTimersByTime(50);
      expect(proxy.core.options.shared.requests.total).toBe(0);
      proxy.client.take();
      proxy.client.send(data(1, whole.subarray(60), true));
      // The connection's window is returned.
      expect(proxy.client.take().map(({ type, id, payload }) => [type, id, payload])).toEqual([
        [WINDOW_UPDATE, 0, u32(whole.length - 60)],
      ]);
      expect([proxy.calls.length, proxy.core.streams.count]).toEqual([0, 0]);
    });

    test('a call that has ended leaves no timer for its deadline', async () => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      const proxy = serving();
      const before = vi.getTimerCount();
      call(proxy, 1, timeout);
      call(proxy, 3, timeout);
      call(proxy, 5, timeout);
      expect(vi.getTimerCount()).toBe(before + 3);
      proxy.calls[0]!.respond(HELLO);
      await settled();
      proxy.calls[1]!.respond(NOT_FOUND);
      await settled();
      proxy.client.send(rst(5, ErrorCode.CANCEL));
      expect(vi.getTimerCount()).toBe(before);
    });
  });

  describe('a call that is not plain', () => {
    const malformed: [string, (proxy: TestProxy) => void][] = [
      ['without a message', (proxy) => proxy.client.send(headers(1, request('/handle/A'), true))],
      [
        'with an empty DATA frame',
        (proxy) => proxy.client.send(headers(1, request('/handle/A')), data(1, Buffer.alloc(0), true)),
      ],
      [
        'with two messages',
        (proxy) =>
          proxy.client.send(
            headers(1, request('/handle/A')),
            data(1, Buffer.concat([message(HELLO), message(HELLO)]), true),
          ),
      ],
      [
        'with an incomplete message in two parts',
        (proxy) =>
          proxy.client.send(
            headers(1, request('/handle/A')),
            data(1, message(HELLO).subarray(0, 7)),
            data(1, Buffer.of(1), true),
          ),
      ],
      [
        'with trailers instead of a message',
        (proxy) =>
          proxy.client.send(headers(1, request('/handle/A')), headers(1, [{ name: 'x-end', value: '1' }], true)),
      ],
      [
        'with a compressed message',
        (proxy) => proxy.client.send(headers(1, request('/handle/A')), data(1, message(HELLO, true), true)),
      ],
      ['with an encoding', (proxy) => call(proxy, 1, [{ name: 'grpc-encoding', value: 'gzip' }])],
      ['with a malformed timeout', (proxy) => call(proxy, 1, [{ name: 'grpc-timeout', value: 'soon' }])],
    ];
    test.each(malformed)('a call that is not plain is forwarded to the local server: %s', (_, send) => {
      const proxy = serving();
      send(proxy);
      expect(proxy.calls).toHaveLength(0);
      const local = proxy.locals[0]!;
      local.send(settings());
      const frames = local.take().filter(({ id }) => id === 1);
      expect(typesOf(frames)[0]).toBe(HEADERS);
      expect(frames.at(-1)!.flags & 1).toBe(1);
      local.send(
        headers(
          1,
          [
            { name: ':status', value: '200' },
            { name: 'grpc-status', value: '12' },
          ],
          true,
        ),
      );
      expect(fieldsOf(proxy.client.take().find(({ type }) => type === HEADERS)!)['grpc-status']).toBe('12');
      expect([proxy.core.streams.count, proxy.core.options.shared.requests.total]).toEqual([0, 0]);
    });
  });

  describe('limits of handled calls', () => {
    test('a request that is too long is rejected, and its place and memory are freed', () => {
      const proxy = serving({ handledRequestLimit: 1000 });
      proxy.client.send(headers(1, request('/handle/A')), data(1, Buffer.alloc(600)), data(1, Buffer.alloc(600)));
      const frames = proxy.client.take();
      expect(fieldsOf(frames.find(({ type }) => type === HEADERS)!)['grpc-status']).toBe('8');
      expect(resetsOf(frames)).toEqual([[1, ErrorCode.NO_ERROR]]);
      expect(proxy.events).toContain('refused requests');
      expect(proxy.core.options.shared.requests.total).toBe(0);
      expect(proxy.core.streams.count).toBe(0);
    });

    test('above the limit of request bytes, the longest request is rejected and the others are served', () => {
      const shared = new SharedBudget({ ...SHARED_LIMITS, requests: 40_000 });
      const proxy = serving({ shared });
      proxy.client.send(headers(1, request('/handle/A')), data(1, Buffer.alloc(16_384)), data(1, Buffer.alloc(10_000)));
      proxy.client.send(headers(3, request('/handle/A')), data(3, message(HELLO).subarray(0, 6)));
      expect(fieldsOf(proxy.client.take().find(({ type }) => type === HEADERS)!)['grpc-status']).toBe('8');
      proxy.client.send(data(3, message(HELLO).subarray(6), true));
      expect(proxy.calls[0]!.call.request).toEqual(HELLO);
    });

    test('calls above the number of places are rejected until a running call ends', async () => {
      const shared = new SharedBudget({ ...SHARED_LIMITS, calls: { all: 1, reserved: 1, compressed: 1 } });
      const proxy = serving({ shared });
      for (const id of [1, 3, 5]) call(proxy, id);
      expect(proxy.calls).toHaveLength(2);
      const refusal = proxy.client.take().find(({ type, id }) => type === HEADERS && id === 5);
      expect(fieldsOf(refusal!)['grpc-status']).toBe('8');
      expect(proxy.events).toContain('refused handled_calls');
      proxy.calls[0]!.respond(HELLO);
      await settled();
      call(proxy, 7);
      expect(proxy.calls).toHaveLength(3);
    });

    test('a client gets a window update for its handled request if the window of the backend is small', () => {
      const proxy = serving();
      proxy.backend.send(settings([4, 100]));
      proxy.client.take();
      proxy.client.send(headers(1, request('/handle/A')));
      expect(proxy.client.take()).toEqual([{ type: WINDOW_UPDATE, flags: 0, id: 1, payload: u32(65_435) }]);
    });
  });

  describe('the end of a connection', () => {
    test('a graceful shutdown waits for handled calls', async () => {
      const proxy = serving();
      call(proxy, 1);
      proxy.client.take();
      proxy.core.shutdown();
      const [first, ping] = proxy.client.take();
      expect(first!.type).toBe(GOAWAY);
      proxy.client.send(frame(6, 1, 0, ping!.payload));
      expect(goawayOf(proxy.client.take())).toEqual({ last: 1, code: 0 });
      expect(proxy.client.ended).toBe(false);
      proxy.calls[0]!.respond(HELLO);
      await settled();
      expect(dataOf(proxy.client.take(), 1)).toEqual(message(HELLO));
      expect(proxy.client.ended).toBe(true);
    });

    test('the loss of the backend leaves handled calls running', async () => {
      const proxy = serving();
      call(proxy, 1);
      proxy.client.take();
      proxy.backend.events.closed(undefined);
      expect(goawayOf(proxy.client.take())).toEqual({ last: 1, code: 0 });
      expect(proxy.calls[0]!.call.cancelled).toBe(false);
      proxy.calls[0]!.respond(NOT_FOUND);
      await settled();
      expect(fieldsOf(proxy.client.take()[0]!)['grpc-status']).toBe('5');
      expect(proxy.client.ended).toBe(true);
    });

    test('an answer that comes later than the end of the connection is dropped', async () => {
      const proxy = serving({ handle: (_, respond) => void settled().then(() => respond(HELLO)) });
      call(proxy, 1);
      proxy.core.destroy();
      await settled();
      expect(proxy.client.takeBytes().indexOf(HELLO)).toBe(-1);
      expect(proxy.events).toEqual(['/handle/A handle cancelled undefined']);
    });

    test('a reset of a call whose request is not complete frees its bytes', () => {
      const proxy = serving();
      proxy.client.send(headers(1, request('/handle/A')), data(1, Buffer.alloc(1000)));
      expect(proxy.core.options.shared.requests.total).toBeGreaterThan(0);
      proxy.client.send(rst(1, ErrorCode.CANCEL));
      expect(proxy.core.options.shared.requests.total).toBe(0);
      expect(typesOf(proxy.client.take())).not.toContain(RST_STREAM);
    });
  });
});

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

type Fields = { name: string; value: string }[];
const read = (fields: Fields): ReturnType<typeof plainCall> =>
  plainCall(fields.map(({ name, value }) => new HeaderField(name, value, 0, 0, false)));
const REQUEST = request('/a/B') as Fields;
const and = (name: string, value: string): Fields => [...REQUEST, { name, value }];
const instead = (name: string, value: string): Fields =>
  REQUEST.map((field) => (field.name === name ? { name, value } : field));
const without = (name: string): Fields => REQUEST.filter((field) => field.name !== name);

test.each<[string, Fields, number]>([
  ['no timeout', REQUEST, Infinity],
  ['a timeout', and('grpc-timeout', '1500m'), 1500],
  ['a part of a millisecond', and('grpc-timeout', '1999u'), 1],
  ['the subtype proto', instead('content-type', 'application/grpc+proto'), Infinity],
  ['no te', without('te'), Infinity],
  ['identity', and('grpc-encoding', 'identity'), Infinity],
])('a call is plain with %s', (_, fields, timeoutMs) => {
  expect(read(fields)?.timeoutMs).toBe(timeoutMs);
});

test.each<[string, Fields]>([
  ['GET', instead(':method', 'GET')],
  ['no method', without(':method')],
  ['no scheme', without(':scheme')],
  ['another scheme', instead(':scheme', 'ftp')],
  ['no path', without(':path')],
  ['no authority', without(':authority')],
  ['a path without a slash', instead(':path', 'a')],
  ['an unknown pseudo-header field', [{ name: ':protocol', value: 'x' }, ...REQUEST]],
  ['a pseudo-header field behind a header', [...without(':path'), { name: ':path', value: '/a/B' }]],
  ['no content type', without('content-type')],
  ['another content type', instead('content-type', 'text/html')],
  ['another te', instead('te', 'gzip')],
  ['a compression', and('grpc-encoding', 'gzip')],
  ['a repeated name', [...and('x-a', '1'), { name: 'x-a', value: '2' }]],
  ['a capital letter', and('X-a', '1')],
  ['an empty name', and('', '1')],
  ['an empty value', and('x-a', '')],
  ['a value with a line end', and('x-a', '1\n2')],
  ['a value that ends with a space', and('x-a', '1 ')],
  ['a value that is not ASCII', and('x-a', 'ü')],
  ['an unknown unit of time', and('grpc-timeout', '1x')],
  ['too many digits', and('grpc-timeout', '123456789m')],
  ['a time too long for a timer', and('grpc-timeout', '600H')],
  ['a header of HTTP/1', and('connection', 'close')],
  ['a content length', and('content-length', '10')],
  ['a header that the shim uses itself', and('x-cri-resize-shim-peer', '1')],
  ['too many headers', [...REQUEST, ...Array.from({ length: 60 }, (_, at) => ({ name: `x-${at}`, value: '1' }))]],
  ['too long headers', and('x-a', 'a'.repeat(17_000))],
])('a call is not plain with %s', (_, fields) => {
  expect(read(fields)).toBeUndefined();
});

describe('starts of calls', () => {
  /** Returns an open proxy and the calls that it has started. */
  function serving(options: TestProxyOptions = {}) {
    const calls: HandledCall[] = [];
    return Object.assign(openProxy({ handle: (call) => void calls.push(call), ...options }), { calls });
  }

  const ids = (count: number): number[] => Array.from({ length: count }, (_, index) => 1 + 2 * index);
  const opened = (id: number): Buffer => headers(id, request('/handle/A'));
  const whole = (id: number, bytes: Uint8Array = Buffer.of(id)): Buffer =>
    Buffer.concat([opened(id), data(id, message(bytes), true)]);

  test('long requests that end in one read start in different turns', async () => {
    const proxy = serving();
    const long = message(Buffer.alloc(100_000, 'r'));
    for (const id of ids(5)) {
      proxy.client.send(opened(id));
      for (let at = 0; at < long.length - 1; at += 16_000)
        proxy.client.send(data(id, long.subarray(at, Math.min(at + 16_000, long.length - 1))));
    }
    proxy.client.send(...ids(5).map((id) => data(id, long.subarray(-1), true)));
    expect(proxy.calls).toHaveLength(1);
    for (const count of [2, 3, 4, 5]) {
      await settled();
      expect(proxy.calls).toHaveLength(count);
    }
    expect(proxy.calls.every((call) => call.request.equals(long.subarray(5)))).toBe(true);
    expect(proxy.core.options.shared.requests.total).toBe(0);
  });

  test('short requests start together up to a bound; those that wait own their bytes', async () => {
    const proxy = serving();
    for (const id of ids(100)) proxy.client.send(whole(id));
    expect(proxy.calls).toHaveLength(31);
    await vi.waitFor(() => expect(proxy.calls).toHaveLength(100), LONG_WAIT);
    expect(proxy.calls.map((call) => call.request[0])).toEqual(ids(100).map((id) => id % 256));
  });

  test('a call that is reset in the same read does not start, though reading takes many turns', async () => {
    const proxy = serving();
    proxy.client.send(...ids(500).map((id) => Buffer.concat([whole(id), rst(id, 8)])));
    await vi.waitFor(() => expect(proxy.core.client.lastStreamId).toBe(999), LONG_WAIT);
    await settled();
    expect(proxy.calls).toHaveLength(0);
    proxy.client.send(whole(1001));
    expect(proxy.calls).toHaveLength(1);
  });

  test('a call that ends while it waits does not start', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const proxy = serving();
    proxy.client.send(whole(1, Buffer.alloc(16_000)), whole(3, Buffer.alloc(16_000)), whole(5, Buffer.alloc(16_000)));
    const late = headers(7, request('/handle/A', [{ name: 'grpc-timeout', value: '5m' }]));
    proxy.client.send(late, data(7, message(Buffer.alloc(16_000)), true));
    expect(proxy.calls).toHaveLength(1);
    proxy.client.send(rst(3, 8));
    vi.advanceTimersByTime(5);
    vi.useRealTimers();
    await settled();
    await settled();
    expect(proxy.calls).toHaveLength(2);
    expect(proxy.core.options.shared.requests.total).toBe(0);
  });

  test('calls that wait do not start when their connection has ended', async () => {
    const proxy = serving();
    proxy.client.send(...ids(3).map((id) => whole(id, Buffer.alloc(16_000))));
    proxy.core.destroy();
    await settled();
    await settled();
    expect(proxy.calls).toHaveLength(1);
    expect(proxy.core.options.shared.requests.total).toBe(0);
  });

  test('waiting requests count towards the limit of bytes, and the longest is rejected above it', async () => {
    const proxy = serving({ shared: new SharedBudget({ ...SHARED_LIMITS, requests: 40_000 }) });
    proxy.client.send(...ids(4).map((id) => whole(id, Buffer.alloc(16_000))));
    const refused = proxy.client.take().filter(({ type }) => type === HEADERS);
    expect(refused.map((seen) => fieldsOf(seen)['grpc-status'])).toEqual(['8']);
    await vi.waitFor(() => expect(proxy.calls).toHaveLength(3), LONG_WAIT);
    expect(proxy.events).toContain('refused requests');
  });

  test('a waiting request is counted once, even if it causes the rejection of another request of its connection', async () => {
    const proxy = serving({ shared: new SharedBudget({ ...SHARED_LIMITS, requests: 70_000 }) });
    const { requests } = proxy.core.options.shared;
    const unfinished = [10_000, 16_000, 16_000].map((size) => data(1, Buffer.alloc(size)));
    proxy.client.send(opened(1), ...unfinished);
    proxy.client.send(...[3, 5, 7, 9].map((id) => whole(id, Buffer.alloc(16_000))));
    const refused = proxy.client.take().filter(({ type }) => type === HEADERS);
    expect(refused.map((seen) => [seen.id, fieldsOf(seen)['grpc-status']])).toEqual([[1, '8']]);
    await vi.waitFor(() => expect(proxy.calls).toHaveLength(4), LONG_WAIT);
    expect(requests.total).toBe(0);
    // No request remains that a later refusal could end, because these calls run.
    proxy.client.send(opened(11));
    for (let sent = 0; sent < 8; sent += 1) proxy.client.send(data(11, Buffer.alloc(10_000)));
    expect(proxy.calls.map(({ cancelled }) => cancelled)).toEqual([false, false, false, false]);
  });

  test('an error of a handler that starts later ends its connection only', async () => {
    const proxy = serving({
      handle: (call) => {
        if (call.request.length === 16_001) throw new Error('broken');
      },
    });
    proxy.client.send(whole(1, Buffer.alloc(16_000)), whole(3, Buffer.alloc(16_001)));
    await settled();
    expect(proxy.events).toContain('error client 2 broken');
  });
});
