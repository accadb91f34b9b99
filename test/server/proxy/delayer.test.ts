import { describe, expect, test } from 'vitest';
import type { DelayedCall } from '../../../src/server/proxy/interception.ts';
import {
  DATA,
  data,
  END_STREAM,
  HEADERS,
  headers,
  holdingUpTo,
  message,
  OK,
  openProxy,
  RESPONSE,
  RST_STREAM,
  request,
  rst,
  SETTINGS_ACK,
  settings,
  settled,
  type TestProxy,
  type TestProxyOptions,
  typesOf,
  WINDOW_UPDATE,
  windowUpdate,
} from '../../support/http2/wire.ts';

const TEXT = Buffer.from('the request');
const whole = message(TEXT);

interface DelayingProxy extends TestProxy {
  readonly calls: DelayedCall[];
  /** Lets the oldest waiting call through. */
  release(error?: Error): Promise<void>;
}

/** A proxy that delays calls whose path has `Stats`. */
function delayingProxy(options: TestProxyOptions = {}): DelayingProxy {
  const calls: DelayedCall[] = [];
  const waiting: [() => void, (error: Error) => void][] = [];
  const proxy = openProxy({
    isDelayed: (path) => path.includes('Stats'),
    delay: (call) => {
      calls.push(call);
      return new Promise((resolve, reject) => waiting.push([resolve, reject]));
    },
    ...options,
  });
  const release = (error?: Error): Promise<void> => {
    const [resolve, reject] = waiting.shift()!;
    if (error === undefined) resolve();
    else reject(error);
    return settled();
  };
  return Object.assign(proxy, { calls, release });
}

const stats = (id: number, path = '/pass/Stats', timeout = '10S'): Buffer =>
  headers(id, request(path, [{ name: 'grpc-timeout', value: timeout }]));

describe('a delayed call', () => {
  test('KEP-1287: a call that waits for usage is forwarded unchanged afterwards and does not delay other calls', async () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole, true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    expect(proxy.calls).toMatchObject([{ path: '/pass/Stats', request: TEXT, timeoutMs: 10_000 }]);
    proxy.client.send(headers(3, request('/pass/Other')), data(3, whole, true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS, DATA]);
    await proxy.release();
    expect(proxy.backend.take()).toEqual([{ type: DATA, flags: END_STREAM, id: 1, payload: whole }]);
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(typesOf(proxy.client.take())).toEqual([HEADERS, DATA, HEADERS]);
    expect(proxy.events).toEqual(['/pass/Stats pass answered 0']);
  });

  test('a delayed call is forwarded if the wait fails', async () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole, true));
    await proxy.release(new Error('no usage'));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS, DATA]);
  });

  test('a delayed call waits for all parts of its request, and the interceptor is asked once', async () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole.subarray(0, 7)));
    proxy.client.send(data(1, whole.subarray(7)));
    // grpc-js ends a request with an empty DATA frame.
    proxy.client.send(data(1, Buffer.alloc(0), true));
    expect([typesOf(proxy.backend.take()), proxy.calls.length]).toEqual([[HEADERS], 1]);
    await proxy.release();
    const frames = proxy.backend.take();
    expect(Buffer.concat(frames.map(({ payload }) => payload))).toEqual(whole);
    expect(frames.map(({ flags }) => flags)).toEqual([0, 0, END_STREAM]);
  });

  test('the response of a delayed call can be amended, with a backend time that excludes the wait', async () => {
    const backendMs: number[] = [];
    const proxy = delayingProxy({
      amend: (exchange) => {
        backendMs.push(exchange.backendMs);
        return Buffer.from('amended');
      },
    });
    proxy.client.send(stats(1, '/amend/Stats'), data(1, whole, true));
    proxy.clock = 8000;
    await proxy.release();
    proxy.clock = 8003;
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(backendMs).toEqual([3]);
    expect(proxy.client.take()[1]?.payload).toEqual(message(Buffer.from('amended')));
  });
});

describe('the end of a delayed call is reported once', () => {
  const refused = (id: number): Buffer => headers(id, [...RESPONSE, { name: 'grpc-status', value: '5' }], true);
  const begin = (options: TestProxyOptions = {}) => {
    let ends = 0;
    const delay = (call: DelayedCall): undefined => {
      call.onEnd(() => (ends += 1));
    };
    const proxy = delayingProxy({ delay, ...options });
    proxy.client.send(stats(1), data(1, whole, true));
    expect(ends).toBe(0);
    return { proxy, ends: () => ends };
  };

  test('the end of an intercepted call is reported once when it is answered', () => {
    const { proxy, ends } = begin();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole));
    expect(ends()).toBe(0);
    proxy.backend.send(headers(1, OK, true));
    expect(ends()).toBe(1);
    proxy.client.events.closed(undefined);
    expect(ends()).toBe(1);
  });

  test.each<[string, (proxy: TestProxy) => void]>([
    ['when it fails', (proxy) => proxy.backend.send(refused(1))],
    ['when the client cancels it', (proxy) => proxy.client.send(rst(1, 8))],
    ['when the connection of the client ends', (proxy) => proxy.client.events.closed(undefined)],
  ])('the end of an intercepted call is reported once %s', (_, end) => {
    const { proxy, ends } = begin();
    end(proxy);
    expect(ends()).toBe(1);
  });

  test('the end of an intercepted call is reported once when the client cancels it during the wait', () => {
    let ends = 0;
    const proxy = delayingProxy({
      delay(call) {
        call.onEnd(() => (ends += 1));
        return new Promise(() => undefined);
      },
    });
    proxy.client.send(stats(1), data(1, whole, true));
    proxy.client.send(rst(1, 8));
    expect(ends).toBe(1);
  });
});

describe('calls that are forwarded at once', () => {
  test('a call that the interceptor does not delay is forwarded at once', () => {
    const proxy = delayingProxy({ delay: () => undefined });
    proxy.client.send(stats(1), data(1, whole, true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS, DATA]);
  });

  test.each([
    ['too long', message(Buffer.alloc(5000, 'a'))],
    ['cut off', whole.subarray(0, 9)],
    ['compressed in spite of its headers', message(TEXT, true)],
    ['longer than one message', Buffer.concat([whole, whole])],
  ])('a request that is %s is forwarded at once', (_what, bytes) => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, bytes, true));
    expect([typesOf(proxy.backend.take()), proxy.calls]).toEqual([[HEADERS, DATA], []]);
  });

  test('a request that continues after its message is forwarded at once, with the frames that follow', () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole));
    proxy.client.send(data(1, whole), data(1, whole, true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS, DATA, DATA, DATA]);
  });

  test('a request in more than 16 frames is forwarded at once, in order', () => {
    const proxy = delayingProxy();
    const parts = [...message(Buffer.alloc(12, 'a'))].map((byte) => Buffer.from([byte]));
    proxy.client.send(stats(1), ...parts.slice(0, 16).map((part) => data(1, part)));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    proxy.client.send(data(1, parts[16]!, true));
    expect(Buffer.concat(proxy.backend.take().map(({ payload }) => payload))).toEqual(Buffer.concat(parts));
    expect(proxy.calls).toEqual([]);
  });

  test('a request is forwarded at once if no memory is left to hold it', async () => {
    const proxy = delayingProxy({ shared: holdingUpTo(2 * whole.length) });
    proxy.client.send(stats(1), data(1, whole, true), stats(3), data(3, whole, true));
    expect([typesOf(proxy.backend.take()), proxy.calls.length]).toEqual([[HEADERS, HEADERS, DATA], 1]);
    await proxy.release();
    proxy.backend.take();
    proxy.client.send(stats(5), data(5, whole, true));
    expect([typesOf(proxy.backend.take()), proxy.calls.length]).toEqual([[HEADERS], 2]);
  });

  test('a request with trailers is forwarded at once, before the trailers', () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole), headers(1, [{ name: 'x', value: 'y' }], true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS, DATA, HEADERS]);
  });
});

describe('a delayed call that ends early', () => {
  test('KEP-1287: if the client cancels a call that waits for usage, the backend gets only a reset and the client its window back', async () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole, true));
    proxy.client.send(rst(1, 8));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS, RST_STREAM]);
    expect(proxy.client.take()).toEqual([
      { type: WINDOW_UPDATE, flags: 0, id: 0, payload: windowUpdate(0, whole.length).subarray(9) },
    ]);
    await proxy.release();
    expect(proxy.backend.take()).toEqual([]);
  });

  test("the request of a delayed call still ends at the backend after the backend's early answer", async () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole, true));
    proxy.backend.take();
    proxy.backend.send(headers(1, [...RESPONSE, { name: 'grpc-status', value: '12' }], true));
    expect(proxy.backend.take()).toEqual([{ type: DATA, flags: END_STREAM, id: 1, payload: whole }]);
    await proxy.release();
    expect([typesOf(proxy.client.take()), proxy.backend.take()]).toEqual([[HEADERS], []]);
  });

  test('if the client cancels a delayed call after an answer that exceeds its window, the backend gets no DATA of the request', async () => {
    const proxy = delayingProxy();
    proxy.client.send(settings([4, 0]), stats(1), data(1, whole, true));
    proxy.backend.send(SETTINGS_ACK, headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    proxy.backend.take();
    proxy.client.send(rst(1, 8));
    expect(typesOf(proxy.backend.take()).filter((type) => type === DATA)).toEqual([]);
    await proxy.release();
    expect(proxy.backend.take()).toEqual([]);
  });

  test("after the backend's reset of a delayed call, the backend gets nothing more, and the client gets its window back", async () => {
    const proxy = delayingProxy({ readAhead: 1000 });
    // The client's window is smaller than the answer, so the stream stays open.
    proxy.client.send(settings([4, 1]), stats(1), data(1, whole, true));
    proxy.backend.send(SETTINGS_ACK, headers(1, RESPONSE), data(1, whole.subarray(0, 1)));
    proxy.backend.send(data(1, whole.subarray(1)), rst(1, 8));
    proxy.client.take();
    proxy.backend.take();
    await proxy.release();
    expect(proxy.backend.take()).toEqual([]);
    expect(proxy.client.take()).toEqual([
      { type: WINDOW_UPDATE, flags: 0, id: 0, payload: windowUpdate(0, whole.length).subarray(9) },
    ]);
  });

  test('a delayed call ends with UNAVAILABLE if the backend is lost', async () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole, true));
    proxy.backend.events.closed(undefined);
    expect(proxy.events).toContain('/pass/Stats pass unavailable 14');
    await proxy.release();
  });

  test('a shutdown waits for a delayed call, and the end of the connection cancels it', async () => {
    const proxy = delayingProxy();
    proxy.client.send(stats(1), data(1, whole, true));
    proxy.core.shutdown();
    expect(proxy.core.streams.running).toBe(1);
    proxy.core.destroy();
    await proxy.release();
    expect(proxy.events).toEqual(['/pass/Stats pass cancelled undefined']);
  });
});
