import { describe, expect, test } from 'vitest';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import { PING, frame, headers, openProxy, request } from '../../support/http2/wire.ts';

describe('a slow reader', () => {
  test('a slow reader pauses reading from the other sides, so that bytes wait in their sockets and not in the proxy', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/handle/A')));
    proxy.client.backlog = 70_000;
    proxy.backend.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect([proxy.backend.paused, proxy.locals[0]!.paused, proxy.client.paused]).toEqual([true, true, false]);
    proxy.client.backlog = 2_000_000;
    proxy.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(proxy.client.paused).toBe(true);
    proxy.client.backlog = 0;
    proxy.client.events.drained();
    expect([proxy.backend.paused, proxy.locals[0]!.paused, proxy.client.paused]).toEqual([false, false, false]);
    proxy.backend.backlog = 70_000;
    proxy.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect([proxy.client.paused, proxy.backend.paused]).toEqual([true, false]);
    proxy.backend.backlog = 0;
    proxy.backend.events.drained();
    expect(proxy.client.paused).toBe(false);
  });

  test('a slow reader is paused with fewer waiting bytes while other slow readers have used up the shared memory', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, held: { reserved: 65_536, all: 1_000_000 } });
    const proxies = [openProxy({ shared }), openProxy({ shared })];
    for (const { client } of proxies) {
      client.backlog = 900_000;
      client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    }
    expect(proxies.map(({ client }) => client.paused)).toEqual([false, true]);
    proxies[0]!.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(proxies[0]!.client.paused).toBe(true);
    for (const { client } of proxies) {
      client.backlog = 0;
      client.events.drained();
    }
    expect(proxies.map(({ client }) => client.paused)).toEqual([false, false]);
  });
});
