import { describe, expect, test } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import {
  DATA,
  END_STREAM,
  HEADERS,
  OK,
  RESPONSE,
  RST_STREAM,
  type SeenFrame,
  type TestProxy,
  WINDOW_UPDATE,
  data,
  dataOf,
  fieldsOf,
  frame,
  goawayOf,
  headers,
  openProxy,
  request,
  resetsOf,
  rst,
  settings,
  typesOf,
} from '../../support/http2/wire.ts';

const KiB = 1024;
/** `/handle/` is the path of calls for the local server. */
const CALL = request('/handle/A');

const statusesOf = (frames: readonly SeenFrame[]): [id: number, code: string | undefined][] =>
  frames.filter(({ type }) => type === HEADERS).map((seen) => [seen.id, fieldsOf(seen)['grpc-status']]);

/** Opens a proxy with a connection to the local server. */
function withLocal(options: Parameters<typeof openProxy>[0] = {}): TestProxy {
  const proxy = openProxy(options);
  proxy.client.send(headers(1, CALL, true));
  proxy.locals[0]!.send(settings(), headers(1, RESPONSE), headers(1, OK, true));
  proxy.client.take();
  proxy.locals[0]!.take();
  return proxy;
}

describe('a request for the local server', () => {
  test('a request for the local server in one frame is forwarded without being held', () => {
    const proxy = withLocal();
    proxy.client.send(headers(3, CALL), data(3, Buffer.from('all'), true));
    const seen = proxy.locals[0]!.take();
    expect(typesOf(seen)).toEqual([HEADERS, DATA]);
    expect(proxy.core.options.shared.requests.total).toBe(0);
  });

  test('a request for the local server in several frames waits for the last one and arrives unchanged', () => {
    const proxy = withLocal();
    const parts = [1, 5, 16_384, 0, 9000, 16_384, 3].map((size, at) => Buffer.alloc(size, at + 1));
    proxy.client.send(headers(3, CALL), ...parts.map((part) => data(3, part)));
    expect(typesOf(proxy.locals[0]!.take())).toEqual([HEADERS]);
    // The client may send more meanwhile: it has its window back.
    const returned = proxy.client.take().filter(({ type, id }) => type === WINDOW_UPDATE && id === 0);
    expect(returned.reduce((sum, { payload }) => sum + payload.readUInt32BE(0), 0)).toBe(41_777);
    proxy.client.send(data(3, Buffer.from('end'), true));
    expect(dataOf(proxy.locals[0]!.take(), 3)).toEqual(Buffer.concat([...parts, Buffer.from('end')]));
    proxy.locals[0]!.send(headers(3, RESPONSE), headers(3, OK, true));
    expect(proxy.core.options.shared.requests.total).toBe(0);
  });

  test.each([
    ['all', [data(3, Buffer.from('all'))]],
    ['', []],
  ])('a request for the local server can end with trailers, which are dropped: %j', (text, parts) => {
    const proxy = withLocal();
    proxy.client.send(headers(3, CALL), ...parts, headers(3, [{ name: 'a', value: 'b' }], true));
    const seen = proxy.locals[0]!.take();
    expect(seen.map(({ type, flags }) => [type, flags & END_STREAM])).toEqual([
      [HEADERS, 0],
      [DATA, END_STREAM],
    ]);
    expect(String(dataOf(seen, 3))).toBe(text);
    expect(proxy.core.options.shared.requests.total).toBe(0);
  });

  test('an incomplete request for the local server frees its bytes if the client cancels the call or the connection ends', () => {
    const proxy = withLocal();
    const { requests } = proxy.core.options.shared;
    const part = Buffer.alloc(10_000);
    for (const id of [3, 5]) proxy.client.send(headers(id, CALL), data(id, part), data(id, part));
    expect(requests.total).toBe(64 * KiB);
    proxy.client.send(rst(3, ErrorCode.CANCEL));
    expect(requests.total).toBe(32 * KiB);
    expect(resetsOf(proxy.locals[0]!.take())).toEqual([[3, ErrorCode.CANCEL]]);
    proxy.core.destroy();
    expect(requests.total).toBe(0);
  });

  test('a request for the local server that is too long ends with RESOURCE_EXHAUSTED, and the client is asked to stop sending it', () => {
    const proxy = withLocal({ handledRequestLimit: 20_000 });
    proxy.client.send(headers(3, CALL), data(3, Buffer.alloc(16_384)), data(3, Buffer.alloc(5000)));
    const seen = proxy.client.take();
    expect(statusesOf(seen)).toEqual([[3, '8']]);
    expect(resetsOf(seen)).toEqual([[3, ErrorCode.NO_ERROR]]);
    expect(resetsOf(proxy.locals[0]!.take())).toEqual([[3, ErrorCode.CANCEL]]);
    expect(proxy.events).toContain('refused requests');
    proxy.client.send(data(3, Buffer.alloc(1000), true));
    expect(typesOf(proxy.client.take())).toEqual([WINDOW_UPDATE]);
    expect(proxy.core.options.shared.requests.total).toBe(0);
  });
});

describe('incomplete requests of all clients', () => {
  const shared = (): SharedBudget => new SharedBudget({ ...SHARED_LIMITS, requests: 100 * KiB });

  test('above the limit of incomplete requests, the longest of all connections ends with RESOURCE_EXHAUSTED, and others continue', () => {
    const budget = shared();
    const [one, other] = [withLocal({ shared: budget }), withLocal({ shared: budget })];
    one.client.send(headers(3, CALL), ...Array.from({ length: 3 }, () => data(3, Buffer.alloc(16_384))));
    other.client.send(headers(3, CALL), data(3, Buffer.alloc(15_000)), data(3, Buffer.alloc(15_000)));
    expect(budget.requests.total).toBe(80 * KiB);
    one.client.take();
    other.client.send(headers(5, CALL), data(5, Buffer.alloc(10_000)), data(5, Buffer.alloc(10_000)));
    expect(statusesOf(one.client.take())).toEqual([[3, '8']]);
    expect(one.events).toContain('refused requests');
    expect(statusesOf(other.client.take())).toEqual([]);
    expect(budget.requests.total).toBe(64 * KiB);
    other.locals[0]!.take();
    other.client.send(data(5, Buffer.from('end'), true));
    expect(dataOf(other.locals[0]!.take(), 5)).toHaveLength(20_003);
    expect(goawayOf(one.client.take())).toBeUndefined();
  });

  test('incomplete requests of all clients never exceed the limit, however many there are', () => {
    const budget = shared();
    const proxy = withLocal({ shared: budget });
    for (let id = 3; id < 203; id += 2) {
      proxy.client.send(headers(id, CALL), data(id, Buffer.alloc(10_000)));
      expect(budget.requests.total).toBeLessThanOrEqual(100 * KiB);
    }
    expect(statusesOf(proxy.client.take())).toHaveLength(94);
    proxy.core.destroy();
    expect(budget.requests.total).toBe(0);
  });
});

describe('calls that the local server handles', () => {
  const gzip = [{ name: 'grpc-encoding', value: 'gzip' }];

  test('above the limit of local calls, a call ends with RESOURCE_EXHAUSTED before the local server, until another call ends', () => {
    const proxy = withLocal({
      shared: new SharedBudget({ ...SHARED_LIMITS, calls: { reserved: 0, all: 2, compressed: 2 } }),
    });
    proxy.client.send(headers(3, CALL), headers(5, CALL, true), headers(7, CALL), data(7, Buffer.alloc(9)));
    expect(statusesOf(proxy.client.take())).toEqual([[7, '8']]);
    expect(proxy.locals[0]!.take().map(({ id }) => id)).toEqual([3, 5]);
    expect(proxy.events).toContain('refused handled_calls');
    proxy.client.send(headers(9, request('/pass/B'), true));
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    proxy.locals[0]!.send(headers(5, RESPONSE), headers(5, OK, true));
    proxy.client.take();
    proxy.client.send(headers(11, CALL, true));
    expect(proxy.locals[0]!.take().map(({ id }) => id)).toEqual([11]);
    proxy.core.destroy();
    expect(proxy.core.options.shared.calls.all.beyond).toBe(0);
  });

  test('each connection has reserved places for local calls, which the calls of others cannot take', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, calls: { reserved: 1, all: 2, compressed: 2 } });
    const [greedy, other] = [withLocal({ shared }), openProxy({ shared })];
    greedy.client.send(...[3, 5, 7, 9, 11].map((id) => headers(id, CALL)));
    expect(statusesOf(greedy.client.take()).map(([id]) => id)).toEqual([9, 11]);
    other.client.send(headers(1, CALL, true), headers(3, CALL, true));
    expect(statusesOf(other.client.take())).toEqual([[3, '8']]);
    greedy.client.send(rst(5, ErrorCode.CANCEL));
    other.client.send(headers(5, CALL, true));
    expect(other.locals[0]!.take().map(({ id }) => id)).toEqual(expect.arrayContaining([1, 5]));
    for (const proxy of [greedy, other]) proxy.core.destroy();
    expect(shared.calls.all.beyond).toBe(0);
  });

  test('local calls with compressed messages have a limit of their own', () => {
    const proxy = withLocal({
      shared: new SharedBudget({ ...SHARED_LIMITS, calls: { reserved: 0, all: 9, compressed: 1 } }),
    });
    const compressed = request('/amend/A', gzip);
    proxy.client.send(headers(3, compressed), headers(5, compressed), headers(7, CALL));
    expect(statusesOf(proxy.client.take())).toEqual([[5, '8']]);
    expect(proxy.locals[0]!.take().map(({ id }) => id)).toEqual([3, 7]);
  });

  test('a local call that was answered before its request was complete ends when its request is dropped for others', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, requests: 100 * KiB });
    const [answered, other] = [withLocal({ shared }), withLocal({ shared })];
    answered.client.send(headers(3, CALL), ...[1, 2, 3, 4].map(() => data(3, Buffer.alloc(16_000))));
    answered.locals[0]!.send(headers(3, RESPONSE), headers(3, OK, true));
    other.client.send(headers(3, CALL), ...[1, 2, 3].map(() => data(3, Buffer.alloc(16_384))));
    expect(answered.events).toContain('refused requests');
    expect(answered.core.streams.get(3)).toBeUndefined();
  });

  test('a local call that was answered before its request was complete keeps its answer when the request gets too long', () => {
    const proxy = withLocal({ handledRequestLimit: 20_000 });
    proxy.client.send(headers(3, CALL));
    proxy.locals[0]!.send(frame(HEADERS, 4, 3, Buffer.from([0x88])), headers(3, OK, true));
    for (let sent = 0; sent < 3; sent += 1) proxy.client.send(data(3, Buffer.alloc(16_384)));
    expect(statusesOf(proxy.client.take())).toEqual([
      [3, undefined],
      [3, '0'],
    ]);
    expect(typesOf(proxy.client.take())).not.toContain(RST_STREAM);
  });
});
