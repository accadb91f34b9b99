import { afterEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import type { HandledAnswer, HandledCall } from '../../../src/server/proxy/interception.ts';
import {
  DATA,
  GOAWAY,
  HEADERS,
  RST_STREAM,
  type TestProxy,
  type TestProxyOptions,
  WINDOW_UPDATE,
  data,
  dataOf,
  fieldsOf,
  frame,
  goawayOf,
  headers,
  message,
  openProxy,
  request,
  resetsOf,
  rst,
  settings,
  settled,
  typesOf,
  u32,
  windowUpdate,
} from '../../support/http2/wire.ts';

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
    // The window of the connection returns.
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
      (proxy) => proxy.client.send(headers(1, request('/handle/A')), headers(1, [{ name: 'x-end', value: '1' }], true)),
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
