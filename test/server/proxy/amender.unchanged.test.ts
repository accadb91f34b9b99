import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  OK,
  RESPONSE,
  data,
  dataOf,
  headers,
  holdingUpTo,
  message,
  openProxy,
  request,
  rst,
  settled,
} from '../../support/http2/wire.ts';
import { APPENDED, PATH, RESPONSE_TEXT, proxyWithCall, whole } from '../../support/http2/amended-call.ts';

afterEach(() => void vi.useRealTimers());

describe('responses that cannot be amended', () => {
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
