import { afterEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import type { Amend } from '../../../src/server/proxy/interception.ts';
import { APPENDED, amended, PATH, proxyWithCall, RESPONSE_TEXT, whole } from '../../support/http2/amended-call.ts';
import {
  DATA,
  data,
  dataOf,
  frame,
  HEADERS,
  headers,
  holdingUpTo,
  message,
  OK,
  openProxy,
  PADDED,
  RESPONSE,
  RST_STREAM,
  request,
  rst,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  settled,
  typesOf,
  u32,
  WINDOW_UPDATE,
  windowUpdate,
} from '../../support/http2/wire.ts';

describe('an amended response', () => {
  test('an amended response is sent with headers and trailers once its message is amended', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(proxy.client.take()).toEqual([]);
    expect(proxy.exchanges.map(({ path, request: sent, response }) => [path, String(sent), String(response)])).toEqual([
      [PATH, 'the request', 'the response'],
    ]);
    await proxy.answer(APPENDED);
    const seen = proxy.client.take();
    expect(typesOf(seen)).toEqual([HEADERS, DATA, HEADERS]);
    expect(dataOf(seen, 1)).toEqual(amended);
    expect(seen.map(({ flags }) => flags & 1)).toEqual([0, 0, 1]);
    expect(proxy.events).toEqual([`${PATH} amend answered 0`]);
  });

  test.each([1, 3, 5, 6, 11])(
    'an amended response does not depend on the frames of the response: %i octets each, with padding',
    async (step) => {
      const proxy = proxyWithCall();
      proxy.backend.send(headers(1, RESPONSE));
      for (let at = 0; at < whole.length; at += step) {
        const part = whole.subarray(at, at + step);
        proxy.backend.send(frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(2), part, Buffer.alloc(2)])));
      }
      proxy.backend.send(headers(1, OK, true));
      await proxy.answer(APPENDED);
      const seen = proxy.client.take();
      expect(dataOf(seen, 1)).toEqual(amended);
      expect(seen.at(-1)!.flags & 1).toBe(1);
    },
  );

  test('an amended response does not depend on the frames of the request', async () => {
    const proxy = proxyWithCall();
    proxy.client.send(headers(3, request(PATH)));
    const sent = message(Buffer.from('other request'));
    for (const octet of sent) proxy.client.send(data(3, Buffer.of(octet)));
    proxy.client.send(data(3, Buffer.alloc(0), true));
    expect(dataOf(proxy.backend.take(), 3)).toEqual(sent);
    proxy.backend.send(headers(3, RESPONSE), data(3, whole), headers(3, OK, true));
    expect(String(proxy.exchanges[0]!.request)).toBe('other request');
    await proxy.answer(APPENDED);
    expect(dataOf(proxy.client.take(), 3)).toEqual(amended);
  });

  test('an amended response may end with DATA instead of trailers', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole, true));
    await proxy.answer(APPENDED);
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toEqual(amended);
    expect(seen.at(-1)!.flags & 1).toBe(1);
    expect(proxy.core.streams.running).toBe(0);
  });

  test('an amended response does not delay other responses that share its headers', async () => {
    const proxy = proxyWithCall();
    proxy.client.send(
      headers(3, request('/pass/A'), true),
      headers(5, request(PATH)),
      data(5, message(Buffer.of()), true),
    );
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    proxy.backend.send(headers(5, RESPONSE), data(5, whole), headers(5, OK, true));
    proxy.backend.send(headers(3, RESPONSE), data(3, Buffer.from('passes')), headers(3, OK, true));
    await settled();
    expect(proxy.client.take().filter(({ id }) => id === 3)).toHaveLength(3);
    expect(proxy.exchanges).toHaveLength(2);
    await proxy.answer(APPENDED);
    await proxy.answer(APPENDED);
    const seen = proxy.client.take();
    expect([dataOf(seen, 1), dataOf(seen, 5)]).toEqual([amended, amended]);
  });

  test("an amended response may exceed the client's window: the backend does not stall, and the window is respected", async () => {
    const proxy = proxyWithCall({}, [4, 1000]);
    const long = Buffer.alloc(300_000, 'r');
    const sent = message(long);
    proxy.backend.send(headers(1, RESPONSE));
    let granted = 1000;
    let connection = 65_535;
    for (let at = 0; at < sent.length; ) {
      const size = Math.min(granted, connection, 16_384, sent.length - at);
      expect(size).toBeGreaterThan(0);
      proxy.backend.send(data(1, sent.subarray(at, at + size)));
      at += size;
      granted -= size;
      connection -= size;
      for (const seen of proxy.backend.take()) {
        expect(seen.type).toBe(WINDOW_UPDATE);
        if (seen.id === 1) granted += seen.payload.readUInt32BE(0);
        else connection += seen.payload.readUInt32BE(0);
      }
    }
    proxy.backend.send(headers(1, OK, true));
    await proxy.answer(APPENDED);
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toHaveLength(1000);
    while (seen.at(-1)!.type === DATA) {
      proxy.client.send(windowUpdate(1, 50_000), windowUpdate(0, 50_000));
      const more = proxy.client.take();
      expect(dataOf(more, 1).length).toBeLessThanOrEqual(65_535);
      for (const one of more) expect(one.payload.length).toBeLessThanOrEqual(16_384);
      seen.push(...more);
    }
    expect(dataOf(seen, 1).equals(message(Buffer.concat([long, APPENDED])))).toBe(true);
    expect(proxy.core.held.total).toBe(0);
  });
});

describe('a prepared amendment', () => {
  /** Returns a proxy that has forwarded a call whose amendment appends bytes, and how many requests it had then. */
  function prepared(amend: Amend, ...clientSettings: [number, number][]) {
    const prepare = vi.fn((path: string, sent: Uint8Array): Amend => {
      atBackend.push(`${path} ${String(sent)}`, ...typesOf(proxy.backend.take()).map(String));
      return amend;
    });
    const atBackend: string[] = [];
    const proxy: ReturnType<typeof openProxy> = openProxy({ prepare, amend: () => never }, ...clientSettings);
    proxy.client.send(headers(1, request(PATH)), data(1, message(Buffer.from('the request')), true));
    proxy.client.writes = 0;
    return { proxy, prepare, atBackend };
  }
  const never = new Promise<undefined>(() => undefined);
  const append: Amend = ({ response }) => Buffer.concat([response, APPENDED]);

  test('is made once, when the request has been written to the backend', () => {
    const { proxy, prepare, atBackend } = prepared(append);
    proxy.client.send(windowUpdate(0, 1));
    expect(prepare).toHaveBeenCalledOnce();
    expect(atBackend).toEqual([`${PATH} the request`, String(HEADERS), String(DATA)]);
  });

  test('of a message that comes at once leaves with headers and trailers in one write', () => {
    const { proxy } = prepared(append);
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    const seen = proxy.client.take();
    expect(typesOf(seen)).toEqual([HEADERS, DATA, HEADERS]);
    expect(dataOf(seen, 1)).toEqual(amended);
    expect([proxy.client.writes, proxy.core.held.total]).toEqual([1, 0]);
    expect(proxy.events).toEqual([`${PATH} amend answered 0`]);
  });

  test.each([1, 6, whole.length])('applies to headers that come first, and to frames of %i octets', (step) => {
    const { proxy } = prepared(append);
    proxy.backend.send(headers(1, RESPONSE));
    expect(proxy.client.take()).toEqual([]);
    for (let at = 0; at < whole.length; at += step) proxy.backend.send(data(1, whole.subarray(at, at + step)));
    proxy.backend.send(headers(1, OK, true));
    const seen = proxy.client.take();
    expect([seen[0]!.type, seen.at(-1)!.type]).toEqual([HEADERS, HEADERS]);
    expect(seen[0]!.payload).toEqual(headers(1, RESPONSE).subarray(9));
    expect(dataOf(seen, 1)).toEqual(amended);
  });

  test.each([
    ['undefined', () => undefined, []],
    [
      'thrown',
      () => {
        throw new Error('no');
      },
      [`skipped ${PATH} failed`],
    ],
  ] as [string, Amend, string[]][])('leaves the response as it is if it is %s', (_, amend, skipped) => {
    const { proxy } = prepared(amend);
    const answer = Buffer.concat([
      headers(1, RESPONSE),
      frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(2), whole, Buffer.alloc(2)])),
      headers(1, OK, true),
    ]);
    proxy.backend.send(answer);
    expect(proxy.client.takeBytes()).toEqual(answer);
    expect(proxy.events).toEqual([...skipped, `${PATH} amend answered 0`]);
  });

  test('that is not known at once is waited for', async () => {
    const answer = Promise.withResolvers<Uint8Array>();
    const { proxy } = prepared(() => answer.promise);
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(proxy.client.take()).toEqual([]);
    answer.resolve(Buffer.concat([RESPONSE_TEXT, APPENDED]));
    await settled();
    expect(dataOf(proxy.client.take(), 1)).toEqual(amended);
  });

  test("waits for the client's windows, and DATA may be the last frame", () => {
    const { proxy } = prepared(append, [4, 10]);
    // The read-ahead is off: the backend gets its window with the first frame.
    proxy.backend.send(headers(1, RESPONSE), data(1, whole.subarray(0, 10)));
    proxy.backend.send(data(1, whole.subarray(10), true));
    expect(dataOf(proxy.client.take(), 1)).toEqual(amended.subarray(0, 10));
    proxy.client.send(windowUpdate(1, 1000));
    const rest = proxy.client.take();
    expect([dataOf(rest, 1), rest.at(-1)!.flags & 1]).toEqual([amended.subarray(10), 1]);
  });

  test('of a response that fits only unchanged is sent as far as the windows allow', () => {
    const { proxy } = prepared(append, [4, whole.length]);
    proxy.backend.send(headers(1, RESPONSE), data(1, whole, true));
    const first = proxy.client.take();
    expect([typesOf(first), dataOf(first, 1)]).toEqual([[HEADERS, DATA], amended.subarray(0, whole.length)]);
    proxy.client.send(windowUpdate(1, 1000));
    expect(dataOf(proxy.client.take(), 1)).toEqual(amended.subarray(whole.length));
    expect(proxy.events).toEqual([`${PATH} amend answered undefined`]);
  });

  test.each(['reset', 'lost'])('is not used if the backend is %s after the headers', (how) => {
    const { proxy } = prepared(append);
    proxy.backend.send(headers(1, RESPONSE), ...(how === 'reset' ? [rst(1, ErrorCode.INTERNAL_ERROR)] : []));
    if (how === 'lost') proxy.backend.events.closed(undefined);
    const seen = proxy.client.take().filter(({ id }) => id === 1);
    expect([dataOf(seen, 1), seen.at(-1)!.type]).toEqual([Buffer.alloc(0), how === 'reset' ? RST_STREAM : HEADERS]);
  });

  test('is made once for a message and an empty last frame', () => {
    const { proxy, prepare } = prepared(append);
    proxy.client.send(headers(3, request(PATH)), data(3, message(Buffer.of(1))), data(3, Buffer.of()));
    proxy.client.send(data(3, Buffer.of(), true));
    expect(prepare).toHaveBeenCalledTimes(2);
  });

  test('is not used if the request goes on after its message', () => {
    const { proxy } = prepared(append);
    proxy.client.send(headers(3, request(PATH)), data(3, message(Buffer.of(1))));
    proxy.client.send(data(3, message(Buffer.of(2)), true));
    proxy.backend.send(headers(3, RESPONSE), data(3, whole), headers(3, OK, true));
    expect(dataOf(proxy.client.take(), 3)).toEqual(whole);
    expect(proxy.events).toEqual([`skipped ${PATH} request`, `${PATH} amend answered 0`]);
  });

  test('is replaced by that of the response if it throws', () => {
    const prepare = (): never => {
      throw new Error('no');
    };
    const proxy = openProxy({ prepare, amend: append });
    proxy.client.send(headers(1, request(PATH)), data(1, message(Buffer.of()), true));
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(dataOf(proxy.client.take(), 1)).toEqual(amended);
    expect(proxy.events).toEqual([`skipped ${PATH} failed`, `${PATH} amend answered 0`]);
  });

  test.each([[true], [false]])('is not used for headers that come twice, in one read: %s', (inOne) => {
    const { proxy } = prepared(append);
    const early = headers(1, [{ name: ':status', value: '103' }]);
    const rest = [headers(1, RESPONSE), data(1, whole), headers(1, OK, true)];
    if (inOne) proxy.backend.send(early, ...rest);
    else for (const part of [early, ...rest]) proxy.backend.send(part);
    expect(proxy.client.takeBytes()).toEqual(Buffer.concat([early, ...rest]));
    expect(proxy.events).toEqual([`skipped ${PATH} response`, `${PATH} amend answered 0`]);
  });

  test('is not made for a request that is held back', () => {
    const prepare = vi.fn(() => undefined);
    const proxy = openProxy({ prepare, isDelayed: () => true, delay: () => new Promise(() => undefined) });
    proxy.client.send(headers(1, request(PATH)), data(1, message(Buffer.of()), true));
    expect(prepare).not.toHaveBeenCalled();
  });
});

describe('held responses', () => {
  test('a client that cancels a held response gets nothing more, and held bytes occupy no window', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole));
    proxy.client.take();
    proxy.client.send(rst(1, ErrorCode.CANCEL));
    const seen = proxy.backend.take();
    expect(typesOf(seen)).toEqual([WINDOW_UPDATE, RST_STREAM]);
    expect([seen[0]!.id, seen[0]!.payload.readUInt32BE(0)]).toEqual([0, whole.length]);
    await proxy.answer(APPENDED);
    proxy.backend.send(headers(1, OK, true));
    expect(proxy.client.take()).toEqual([]);
    expect(proxy.events).toEqual([`${PATH} amend cancelled undefined`]);
    expect(proxy.core.held.total).toBe(0);
  });

  test('a backend that is lost before the trailers of a held response causes UNAVAILABLE without a partial response', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole));
    proxy.client.take();
    proxy.backend.events.closed(undefined);
    const seen = proxy.client.take();
    expect(seen[0]!.type).toBe(HEADERS);
    expect(String(seen[0]!.payload)).toMatch(/grpc-status.*14/s);
    expect(seen[0]!.flags & 1).toBe(1);
    expect(dataOf(seen, 1)).toHaveLength(0);
    await proxy.answer(APPENDED);
    expect(proxy.client.take()).toEqual([]);
  });

  test('a backend that is lost after the trailers does not affect the held response', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    proxy.backend.events.closed(undefined);
    proxy.client.take();
    expect(proxy.client.ended).toBe(false);
    await proxy.answer(APPENDED);
    expect(dataOf(proxy.client.take(), 1)).toEqual(amended);
    expect(proxy.client.ended).toBe(true);
    expect(proxy.events.at(-1)).toBe(`${PATH} amend answered 0`);
  });

  test("a change of the client's windows applies to a held response", async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    proxy.client.send(settings([4, 7]));
    proxy.backend.send(SETTINGS_ACK);
    proxy.client.take();
    await proxy.answer(APPENDED);
    expect(dataOf(proxy.client.take(), 1)).toHaveLength(7);
    // Held bytes count against the backend's window of the stream until they are sent.
    expect(proxy.backend.take().map(({ type, id }) => [type, id])).toEqual([
      [WINDOW_UPDATE, 0],
      [SETTINGS, 0],
    ]);
    proxy.client.send(windowUpdate(1, 1000));
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toEqual(amended.subarray(7));
    expect(seen.at(-1)!.type).toBe(HEADERS);
  });
});

describe('an amended call', () => {
  test('an amended call with a compressed request is handled by the local server', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request(PATH, [{ name: 'grpc-encoding', value: 'gzip' }])));
    expect(proxy.backend.take()).toEqual([]);
    expect(typesOf(proxy.locals[0]!.take())).toContain(HEADERS);
    proxy.client.send(headers(3, request(PATH, [{ name: 'grpc-encoding', value: 'identity' }])));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
  });

  test('an amended call grants the backend no window for appended bytes', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    await proxy.answer(APPENDED);
    proxy.backend.take();
    proxy.client.send(windowUpdate(0, whole.length + 100));
    expect(proxy.backend.take()).toEqual([
      { type: WINDOW_UPDATE, flags: 0, id: 0, payload: u32(100 - APPENDED.length) },
    ]);
  });
});

describe('responses that cannot be amended', () => {
  afterEach(() => void vi.useRealTimers());

  const trailers = headers(1, OK, true);
  test.each<[what: string, reason: string, sent: Buffer[]]>([
    ['it is compressed', 'response', [data(1, message(RESPONSE_TEXT, true)), trailers]],
    ['it is two messages', 'response', [data(1, Buffer.concat([whole, whole])), trailers]],
    ['it is cut off by trailers', 'response', [data(1, whole.subarray(0, 8)), trailers]],
    ['it is cut off by its last frame', 'response', [data(1, whole.subarray(0, 8), true)]],
    ['it is cut off by a reset', 'response', [data(1, whole.subarray(0, 8)), rst(1, 2)]],
    ['it is longer than the response limit', 'response', [data(1, message(Buffer.alloc(5001))), trailers]],
  ])('a response is forwarded unchanged if %s', async (_, reason, sent) => {
    const proxy = proxyWithCall({ responseLimit: 5000 });
    proxy.backend.send(headers(1, RESPONSE), ...sent);
    await settled();
    const expected = openProxy();
    expected.client.send(headers(1, request('/pass/A'), true));
    expected.backend.send(headers(1, RESPONSE), ...sent);
    const seen = proxy.client.take();
    const asItCame = expected.client.take();
    expect(dataOf(seen, 1)).toEqual(dataOf(asItCame, 1));
    expect(seen.at(-1)).toEqual(asItCame.at(-1));
    expect(proxy.exchanges).toEqual([]);
    expect(proxy.events).toContain(`skipped ${PATH} ${reason}`);
    expect(proxy.core.held.total).toBe(0);
  });

  test('an error without a message is forwarded as received', () => {
    const proxy = proxyWithCall();
    const answer = headers(1, [...RESPONSE, { name: 'grpc-status', value: '5' }], true);
    proxy.backend.send(answer);
    expect(proxy.client.takeBytes()).toEqual(answer);
    expect(proxy.events).toEqual([`${PATH} amend answered 5`]);
  });

  test('a response is forwarded unchanged if the amendment is undefined', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    await proxy.answer(undefined);
    expect(dataOf(proxy.client.take(), 1)).toEqual(whole);
    expect(proxy.events).toEqual([`${PATH} amend answered 0`]);
  });

  test.each(['rejected', 'thrown'])('a response is forwarded unchanged if the amendment is %s', async (how) => {
    const proxy =
      how === 'rejected'
        ? proxyWithCall()
        : openProxy({
            amend: () => {
              throw new Error('no');
            },
          });
    if (!('fail' in proxy)) proxy.client.send(headers(1, request(PATH)), data(1, message(Buffer.of()), true));
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    if ('fail' in proxy) await (proxy as ReturnType<typeof proxyWithCall>).fail(new Error('no'));
    await settled();
    const seen = proxy.client.take();
    expect(dataOf(seen, 1)).toEqual(whole);
    expect(proxy.events).toEqual([`skipped ${PATH} failed`, `${PATH} amend answered 0`]);
  });

  test('a response is forwarded unchanged if the amendment takes too long, and its late result is ignored', async () => {
    vi.useFakeTimers();
    const proxy = proxyWithCall({ amendTimeout: 2000 });
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    await settled();
    vi.advanceTimersByTime(1999);
    expect(proxy.client.take()).toEqual([]);
    vi.advanceTimersByTime(1);
    await settled();
    expect(dataOf(proxy.client.take(), 1)).toEqual(whole);
    await proxy.answer(APPENDED);
    expect(proxy.client.take()).toEqual([]);
    expect(proxy.events).toEqual([`skipped ${PATH} slow`, `${PATH} amend answered 0`]);
  });

  test('a response is forwarded unchanged if a second message arrives while the first is held', async () => {
    const proxy = proxyWithCall();
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), data(1, whole), headers(1, OK, true));
    await settled();
    expect(dataOf(proxy.client.take(), 1)).toEqual(Buffer.concat([whole, whole]));
    await proxy.answer(APPENDED);
    expect(proxy.client.take()).toEqual([]);
    expect(proxy.events).toContain(`skipped ${PATH} response`);
  });

  test.each<[string, Buffer]>([
    ['longer than the request limit', message(Buffer.alloc(1001))],
    ['compressed', message(Buffer.alloc(10), true)],
    ['cut off', message(Buffer.alloc(10)).subarray(0, 12)],
    ['two messages', Buffer.concat([message(Buffer.alloc(10)), message(Buffer.alloc(10))])],
  ])('a response is forwarded unchanged if its request is %s', (_, sent) => {
    const proxy = openProxy({
      requestLimit: 1000,
      amend: ({ response }) => Promise.resolve(Buffer.concat([response, APPENDED])),
    });
    proxy.client.send(headers(1, request(PATH)), data(1, sent, true));
    expect(dataOf(proxy.backend.take(), 1)).toEqual(sent);
    proxy.backend.send(headers(1, RESPONSE), data(1, whole), headers(1, OK, true));
    expect(dataOf(proxy.client.take(), 1)).toEqual(whole);
    expect(proxy.events).toContain(`skipped ${PATH} request`);
    expect(proxy.core.held.total).toBe(0);
  });

  test('a response is forwarded unchanged if the limit of held bytes is reached', async () => {
    const proxy = proxyWithCall({ shared: holdingUpTo(34_000) });
    proxy.backend.send(headers(1, RESPONSE), data(1, message(Buffer.alloc(30_000)).subarray(0, 16_384)));
    proxy.client.send(headers(3, request(PATH)), data(3, message(Buffer.of()), true));
    const second = message(Buffer.alloc(20_000));
    proxy.backend.send(headers(3, RESPONSE), data(3, second.subarray(0, 9000)));
    expect(dataOf(proxy.client.take(), 3)).toEqual(second.subarray(0, 9000));
    proxy.backend.send(data(3, second.subarray(9000)), headers(3, OK, true));
    expect(dataOf(proxy.client.take(), 3)).toEqual(second.subarray(9000));
    expect(proxy.events).toContain(`skipped ${PATH} memory`);
    proxy.backend.send(data(1, message(Buffer.alloc(30_000)).subarray(16_384)), headers(1, OK, true));
    await proxy.answer(APPENDED);
    expect(proxy.events).toContain(`${PATH} amend answered 0`);
  });
});
