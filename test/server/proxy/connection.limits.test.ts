import { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { LIMITS, SHARED_LIMITS, refuseConnection } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import {
  GOAWAY,
  HEADERS,
  OK,
  PREFACE,
  RESPONSE,
  SETTINGS,
  data,
  fieldsOf,
  goawayOf,
  headers,
  message,
  openProxy,
  request,
  settings,
  startProxy,
  typesOf,
} from '../../support/http2/wire.ts';

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
      expect(fieldsOf(last!)).toMatchObject({ 'grpc-status': '14', 'grpc-message': 'error reading from server: EOF' });
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
