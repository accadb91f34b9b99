import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { LIMITS, SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import {
  GOAWAY,
  HEADERS,
  PING,
  PREFACE,
  RESPONSE,
  SETTINGS,
  WINDOW_UPDATE,
  data,
  dataOf,
  frame,
  goaway,
  goawayOf,
  headers,
  message,
  openProxy,
  request,
  resetsOf,
  settings,
  settled,
  startProxy,
  typesOf,
  windowUpdate,
} from '../../support/http2/wire.ts';

const many = (count: number, bytes: Buffer): Buffer => Buffer.concat(Array.from({ length: count }, () => bytes));

describe('streams of one connection', () => {
  test('streams of one connection above the limit are refused until another stream ends', () => {
    const proxy = openProxy({ streamLimit: 2 });
    proxy.client.send(
      headers(1, request('/pass/A')),
      headers(3, request('/handle/B')),
      headers(5, request('/amend/C')),
    );
    expect(resetsOf(proxy.client.take())).toEqual([[5, ErrorCode.REFUSED_STREAM]]);
    expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    // Data that the client has sent before it knows that is dropped, and its window comes back.
    proxy.client.send(data(5, Buffer.alloc(100)));
    expect(typesOf(proxy.client.take())).toEqual([WINDOW_UPDATE]);
    proxy.backend.send(frame(3, 0, 1, Buffer.alloc(4)));
    proxy.client.take();
    proxy.client.send(headers(7, request('/pass/D')));
    expect(resetsOf(proxy.client.take())).toEqual([]);
  });

  test.each([
    ['the limit, if the backend has none', settings(), LIMITS.streamLimit],
    ['the backend’s number, if that is lower', settings([3, 100]), 100],
    ['the limit, if the backend’s number is higher', settings([3, 100_000]), LIMITS.streamLimit],
  ])('the number of streams that SETTINGS announce is %s', (_, sent, announced) => {
    const proxy = startProxy();
    proxy.client.send(PREFACE, settings());
    proxy.backend.send(sent);
    const first = proxy.client.take().find(({ type }) => type === SETTINGS);
    expect(first?.payload.readUInt16BE(0)).toBe(3);
    expect(first?.payload.readUInt32BE(2)).toBe(announced);
  });
});

describe('SETTINGS that are not acknowledged', () => {
  test('a client that exceeds the limit of unacknowledged SETTINGS is disconnected', () => {
    const proxy = openProxy();
    proxy.client.send(many(LIMITS.settingsLimit + 1, settings([4, 70_000])));
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('a backend that exceeds the limit of unacknowledged SETTINGS is disconnected', () => {
    const proxy = openProxy();
    proxy.backend.send(many(LIMITS.settingsLimit + 1, settings([5, 20_000])));
    expect(goawayOf(proxy.backend.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });
});

test('SETTINGS that are not acknowledged take little memory, however many values they have', () => {
  const proxy = openProxy();
  const values = settings(...Array.from({ length: 2700 }, (_, at): [number, number] => [100 + at, 1]));
  proxy.client.send(many(LIMITS.settingsLimit, values));
  expect(proxy.core.control.unacknowledged).toHaveLength(LIMITS.settingsLimit);
  // 15 MB were remembered before.
  expect(JSON.stringify(proxy.core.control.unacknowledged).length).toBeLessThan(10_000);
});

describe('L1: the backend', () => {
  test.each([
    ['PING', frame(PING, 0, 0, Buffer.alloc(8))],
    ['GOAWAY', goaway(2 ** 31 - 1, 0)],
  ])('a backend loses its connection after a flood of %s', (_, flood) => {
    const proxy = openProxy();
    for (let sent = 0; sent < 200 && !proxy.backend.ended; sent += 1) proxy.backend.send(many(100, flood));
    expect(proxy.backend.ended).toBe(true);
    expect(goawayOf(proxy.backend.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('a backend is not read while it does not take its answers', () => {
    const proxy = openProxy();
    proxy.backend.backlog = 2 * MiB;
    proxy.backend.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(proxy.backend.paused).toBe(true);
    proxy.backend.backlog = 0;
    proxy.backend.events.drained();
    expect(proxy.backend.paused).toBe(false);
  });
});

describe('H4: data that waits for a client with a large window for its connection and none for its streams', () => {
  /** Sends as much as the backend may, in frames of this size. Returns the bytes sent. */
  function flood(proxy: ReturnType<typeof openProxy>, size: number): number {
    const windows = new Map([[0, 65_535]]);
    let sent = 0;
    for (let id = 1, stuck = 0; stuck < 1001; id = id >= 2001 ? 1 : id + 2) {
      for (const seen of proxy.backend.take())
        if (seen.type === WINDOW_UPDATE)
          windows.set(seen.id, (windows.get(seen.id) ?? 1) + seen.payload.readUInt32BE(0));
      const [all, own] = [windows.get(0) ?? 0, windows.get(id) ?? 1];
      const part = Math.min(size, all, own);
      stuck = part > 0 ? 0 : stuck + 1;
      if (part === 0) continue;
      proxy.backend.send(data(id, Buffer.alloc(part)));
      windows.set(0, all - part);
      windows.set(id, own - part);
      sent += part;
    }
    return sent;
  }

  const open = (options: Parameters<typeof openProxy>[0]): ReturnType<typeof openProxy> => {
    const proxy = openProxy({ readAhead: MiB / 4, queueLimit: MiB, ...options }, [4, 1]);
    proxy.client.send(windowUpdate(0, 1 << 30));
    for (let id = 1; id < 2003; id += 2) proxy.client.send(headers(id, request('/pass/A'), true));
    for (let id = 1; id < 2003; id += 2) proxy.backend.send(headers(id, RESPONSE));
    proxy.client.take();
    return proxy;
  };

  test('data that waits for a client without stream windows is limited for the connection', () => {
    expect(flood(open({}), 16_384)).toBeLessThanOrEqual(MiB);
  });

  test('data that waits for a client without stream windows is limited for all connections together', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, queued: 100_000 });
    const [first, second] = [open({ shared }), open({ shared })];
    expect(flood(first, 16_384)).toBeGreaterThan(100_000);
    const before = shared.queued.total;
    flood(second, 1000);
    // Data within the window that was granted before the limit may still come.
    expect(shared.queued.total).toBeLessThanOrEqual(before + MiB);
    first.core.destroy();
    second.core.destroy();
    expect(shared.queued.total).toBe(0);
  });

  test('data that waits for a client without stream windows arrives unchanged, in frames of any size', () => {
    const proxy = openProxy({ readAhead: MiB / 4 }, [4, 1]);
    proxy.client.send(headers(1, request('/pass/A'), true), headers(3, request('/pass/B'), true));
    const parts = Array.from({ length: 2000 }, (_, at) => Buffer.alloc(1 + (at % 7), at % 251));
    for (const part of parts) proxy.backend.send(data(1, part), data(3, part));
    const first = proxy.client.take();
    proxy.client.send(windowUpdate(1, 1_000_000), windowUpdate(3, 1_000_000));
    const seen = [...first, ...proxy.client.take()];
    expect(dataOf(seen, 1)).toEqual(Buffer.concat(parts));
    expect(dataOf(seen, 3)).toEqual(Buffer.concat(parts));
    expect(seen.length).toBeLessThan(100);
  });
});

describe('DATA of a handled call', () => {
  test.each([
    ['a single byte', data(1, Buffer.of(1))],
    ['padding alone', frame(0, 8, 1, Buffer.concat([Buffer.of(64), Buffer.alloc(64)]))],
  ])('DATA of a handled call ends the connection after a flood of frames of %s', (_, flood) => {
    const proxy = openProxy();
    proxy.backend.send(windowUpdate(0, 10_000_000));
    proxy.client.send(headers(1, request('/handle/A')));
    for (let sent = 0; sent < 110 && !proxy.client.ended; sent += 1) proxy.client.send(many(100, flood));
    expect(goawayOf(proxy.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });
});

describe('H4: messages that are held', () => {
  test('held messages take little more memory than their bytes if they arrive byte by byte', async () => {
    const proxy = openProxy();
    proxy.backend.send(windowUpdate(0, 1_000_000));
    const bytes = 300_000;
    proxy.client.send(headers(1, request('/amend/A')));
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(bytes, 1);
    proxy.client.send(data(1, prefix));
    const before = process.memoryUsage();
    for (let at = 0; at < bytes / 100; at += 1) {
      // Below the rate of a flood.
      proxy.clock += 20;
      proxy.client.send(many(100, data(1, Buffer.of(1))));
    }
    const after = process.memoryUsage();
    // 320 MB were taken for 1 MiB before: one buffer for each byte.
    expect(after.heapUsed + after.external - before.heapUsed - before.external).toBeLessThan(100 * bytes);
    expect(proxy.core.held.total).toBe(bytes + 5);
    proxy.core.destroy();
    await settled();
    expect(proxy.core.held.total).toBe(0);
  });

  test('messages above the limit of held bytes of all connections are not amended', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, held: { reserved: 0, all: 2000 } });
    const [one, other] = [openProxy({ shared }), openProxy({ shared })];
    for (const proxy of [one, other]) {
      proxy.client.send(headers(1, request('/amend/A'), true));
      const prefix = Buffer.alloc(5);
      prefix.writeUInt32BE(900, 1);
      proxy.backend.send(headers(1, RESPONSE), data(1, Buffer.concat([prefix, Buffer.alloc(500)])));
    }
    expect(one.events.filter((event) => event.startsWith('skipped'))).toEqual([]);
    expect(other.events).toContain('skipped /amend/A memory');
    expect(typesOf(other.client.take())).not.toContain(GOAWAY);
  });
});

describe('amended responses that wait for a client without windows for its streams', () => {
  const response = message(Buffer.alloc(300_000));
  /** The window of each stream. A smaller one would make as many frames as bytes. */
  const WINDOW = 1024;

  /** Answers calls one by one, with as much as the backend's windows allow. */
  function answer(proxy: ReturnType<typeof openProxy>, route: 'amend' | 'each', calls: number): void {
    const windows = new Map([[0, 65_535]]);
    const windowOf = (id: number): number => windows.get(id) ?? WINDOW;
    const widen = (id: number, bytes: number): void => void windows.set(id, windowOf(id) + bytes);
    const allowed = (id: number): number => {
      for (const seen of proxy.backend.take())
        if (seen.type === WINDOW_UPDATE) widen(seen.id, seen.payload.readUInt32BE(0));
      // The proxy does not read the backend meanwhile.
      return proxy.backend.paused ? 0 : Math.min(16_384, windowOf(0), windowOf(id));
    };
    for (let id = 1; id < 2 * calls; id += 2) {
      proxy.client.send(headers(id, request(`/${route}/A`)), data(id, message(Buffer.alloc(3)), true));
      proxy.backend.send(headers(id, RESPONSE));
      for (let at = 0, size = 0; at < response.length && (size = allowed(id)) > 0; at += size) {
        const part = response.subarray(at, at + size);
        for (const of of [0, id]) widen(of, -part.length);
        proxy.backend.send(data(id, part));
      }
    }
  }

  const waiting = (proxy: ReturnType<typeof openProxy>): number =>
    [...proxy.core.streams.all()]
      .flatMap(({ down }) => down.queue)
      .reduce((sum, item) => sum + (item.kind === 'data' ? item.size : 0), 0);

  test.each(['amend', 'each'] as const)(
    'amended responses that wait for stream windows are limited for the connection: %s',
    (route) => {
      const proxy = openProxy({ readAhead: MiB / 4, queueLimit: MiB, amend: () => undefined }, [4, WINDOW]);
      proxy.client.send(windowUpdate(0, 1 << 30));
      answer(proxy, route, 100);
      // 28 MiB waited before, and counted nowhere.
      expect(waiting(proxy)).toBeGreaterThan(MiB);
      expect(waiting(proxy)).toBeLessThan(3 * MiB);
      const { held, queued } = proxy.core.options.shared;
      expect(queued.total + held.total).toBeGreaterThanOrEqual(waiting(proxy));
      proxy.core.destroy();
      expect([held.total, queued.total]).toEqual([0, 0]);
    },
  );

  test('amended responses of any length that wait for stream windows are limited for all connections', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, queued: MiB / 4, held: { reserved: 0, all: 2 * MiB } });
    const proxies = Array.from({ length: 40 }, () => {
      const proxy = openProxy({ readAhead: MiB / 4, queueLimit: MiB / 8, amend: () => undefined, shared }, [4, WINDOW]);
      proxy.client.send(windowUpdate(0, 1 << 30));
      answer(proxy, 'amend', 1);
      return proxy;
    });
    const total = proxies.reduce((sum, proxy) => sum + waiting(proxy), 0);
    expect(total).toBeGreaterThan(2 * MiB - proxies.length * WINDOW);
    expect(total).toBeLessThan(MiB / 4 + 2 * MiB + 40 * 65_536 + response.length);
    expect(proxies.at(-1)?.events).toContain('skipped /amend/A memory');
    for (const proxy of proxies) proxy.core.destroy();
    expect([shared.queued.total, shared.held.total]).toEqual([0, 0]);
  });

  test('amended responses that wait in the sockets of all connections are limited', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, held: { reserved: 0, all: 2 * MiB } });
    let written = 0;
    const proxies = Array.from({ length: 40 }, () => {
      const proxy = openProxy({ readAhead: MiB / 4, queueLimit: MiB, amend: () => undefined, shared }, [4, MiB]);
      proxy.client.send(windowUpdate(0, 1 << 30));
      // Written data stays in the process: the client does not read.
      const write = proxy.client.write.bind(proxy.client);
      proxy.client.write = (slices, size) => {
        write(slices, size);
        proxy.client.backlog += size;
        written += size;
      };
      answer(proxy, 'amend', 1);
      return proxy;
    });
    const skipped = proxies.filter(({ events }) => events.includes('skipped /amend/A memory'));
    expect(skipped.length).toBeGreaterThan(20);
    expect(shared.held.total).toBeLessThan(2 * MiB + response.length);
    for (const proxy of proxies) {
      proxy.client.takeBytes();
      proxy.client.backlog = 0;
      proxy.client.events.drained();
    }
    expect([written > 0, shared.held.total]).toEqual([true, 0]);
    for (const proxy of proxies) proxy.core.destroy();
  });

  test('amended responses that wait for stream windows are limited by the queue limit of all connections', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, queued: 3 * MiB });
    const proxies = Array.from({ length: 20 }, () => {
      const proxy = openProxy({ readAhead: MiB / 4, queueLimit: MiB, amend: () => undefined, shared }, [4, WINDOW]);
      proxy.client.send(windowUpdate(0, 1 << 30));
      answer(proxy, 'amend', 20);
      return proxy;
    });
    const total = proxies.reduce((sum, proxy) => sum + waiting(proxy), 0);
    expect(total).toBeLessThan(5 * MiB + 20 * (MiB / 4 + response.length));
    for (const proxy of proxies) proxy.core.destroy();
    expect(shared.queued.total).toBe(0);
  });
});
