import { expect, test, vi } from 'vitest';
import type { HandledCall } from '../../../src/server/proxy/interception.ts';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import {
  HEADERS,
  type TestProxyOptions,
  data,
  fieldsOf,
  headers,
  message,
  openProxy,
  request,
  rst,
  settled,
} from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

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
  // Nothing is left that a later refusal could end: these calls run.
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
