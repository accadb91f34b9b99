import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { get, type IncomingMessage, request } from 'node:http';
import { type AddressInfo, createConnection, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Reason, ShimError } from '../../src/core/errors.ts';
import { Code } from '../../src/core/grpc.ts';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { MONITORING_LIMITS, type MonitoringLimits } from '../../src/monitoring/limits.ts';
import { createMonitoringServer, type MonitoringServer } from '../../src/monitoring/server.ts';
import type { Overview } from '../../src/sandbox/report/overview.ts';
import { eventually } from '../support/fake-clock.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

const nothing: Overview = { pods: [], recent: [], history: [] };

let server: MonitoringServer;
let overview: (signal?: AbortSignal) => Promise<Overview>;
let refused: string[];
let resized: (() => void) | undefined;
let watches: number;
let reads: number;
let logged: string[];
const opened: { destroy(): unknown }[] = [];
const port = (): number => (server.http.address() as AddressInfo).port;

async function listening(limits: Partial<MonitoringLimits> = {}, tokenFile?: string): Promise<void> {
  server = createMonitoringServer(
    {
      version: '1.2.3',
      counted: [],
      readiness: () => Promise.resolve({ ready: true, checks: [] }),
      node: () => ({ pods: 0, volumes: { count: 0, size: 0, used: 0 }, unfinished: [], foresight: false }),
      connections: () => 0,
      bypass: () => ({ start: undefined, end: undefined }),
      endpoint: () => 'unknown',
      overview: (signal) => {
        reads += 1;
        return overview(signal);
      },
      watchResizes: (onResize) => {
        watches += 1;
        resized = onResize;
        return () => {
          watches -= 1;
          resized = undefined;
        };
      },
      refused: (budget) => void refused.push(budget),
      log: { ...noLog, error: (_, text) => void logged.push(text) },
    },
    { isTcp: true, ...(tokenFile !== undefined && { tokenFile }) },
    { ...MONITORING_LIMITS, pageMs: 0, streamMs: 3_600_000, streamPauseMs: 1, ...limits },
  );
  server.http.listen({ host: '127.0.0.1', port: 0 });
  await once(server.http, 'listening');
}

beforeEach(async () => {
  [refused, watches, reads, logged] = [[], 0, 0, []];
  overview = () => Promise.resolve(nothing);
  await listening();
});
afterEach(async () => {
  vi.useRealTimers();
  for (const one of opened.splice(0)) one.destroy();
  server.close();
  await expect.poll(() => watches, LONG_WAIT).toBe(0);
});

async function open(path = '/live'): Promise<IncomingMessage> {
  const call = get({ host: '127.0.0.1', port: port(), path, agent: false });
  opened.push(call);
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  response.on('error', () => undefined);
  return response;
}

const openConnections = (): Promise<number> =>
  new Promise((resolve) => server.http.getConnections((_, count) => resolve(count)));

/** Yields the parts of each event. */
async function* updatesOf(response: IncomingMessage): AsyncGenerator<Record<string, string>> {
  let text = '';
  for await (const chunk of response.setEncoding('utf8') as AsyncIterable<string>) {
    text += chunk;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      expect(text.startsWith('data: ')).toBe(true);
      yield JSON.parse(text.slice('data: '.length, end)) as Record<string, string>;
      text = text.slice(end + 2);
    }
  }
}

const next = async (updates: AsyncGenerator<Record<string, string>>): Promise<Record<string, string>> =>
  (await updates.next()).value as Record<string, string>;

const podNamed = (name: string): Overview['pods'][number] => ({
  pod: { namespace: 'default', name, uid: 'u', sandboxId: `id-${name}` },
  view: { reason: 'CGROUP_UNAVAILABLE', message: `no file of ${name}` },
  history: [],
});

test('a live page receives all parts first, and only the changed parts after a resize', async () => {
  const response = await open();
  expect([response.statusCode, response.headers['content-type']]).toEqual([200, 'text/event-stream; charset=utf-8']);
  const updates = updatesOf(response);
  expect(Object.keys(await next(updates)).sort()).toEqual(['card', 'history', 'pods', 'resizes', 'state']);
  overview = () => Promise.resolve({ ...nothing, pods: [podNamed('web')] });
  resized?.();
  const changed = await next(updates);
  // The part `state` contains the time.
  expect(Object.keys(changed).sort()).toEqual(['pods', 'state']);
  expect(changed['pods']).toContain('default/web');
});

test('the live page of one pod receives the details of this pod', async () => {
  overview = () => Promise.resolve({ ...nothing, pods: [podNamed('web'), podNamed('db')] });
  const { card } = await next(updatesOf(await open('/live?pod=id-db')));
  expect(card).toContain('no file of db');
  expect(card).not.toContain('no file of web');
});

test('a live page is updated periodically without a resize', async () => {
  server.close();
  await listening({ streamMs: 20 });
  const updates = updatesOf(await open());
  await next(updates);
  expect((await next(updates))['state']).toContain('1.2.3');
});

test.each(['first', 'later'])('the %s reading is aborted when the last live page is closed', async (which) => {
  const updates = updatesOf(await open());
  if (which === 'later') await next(updates);
  const asked = Promise.withResolvers<AbortSignal>();
  overview = (signal) =>
    new Promise((_, reject) => {
      asked.resolve(signal!);
      signal?.addEventListener('abort', () => reject(signal.reason as Error));
    });
  // The request has no response until the first reading has ended.
  if (which === 'first') open().catch(() => undefined);
  else resized?.();
  const signal = await asked.promise;
  expect(signal.aborted).toBe(false);
  for (const one of opened.splice(0)) one.destroy();
  await expect.poll(() => signal.aborted, LONG_WAIT).toBe(true);
  await expect.poll(() => watches, LONG_WAIT).toBe(0);
  expect(logged).toEqual([]);
});

test('reads nothing and watches no resize while no live page is open', async () => {
  server.close();
  await listening({ streamMs: 20 });
  const updates = updatesOf(await open());
  await next(updates);
  // While a page is open, the overview is read repeatedly.
  await next(updates);
  expect(watches).toBe(1);
  for (const one of opened.splice(0)) one.destroy();
  await expect.poll(() => watches, LONG_WAIT).toBe(0);
  const before = reads;
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(reads).toBe(before);
});

test('a live page that cannot be read shows the reason, and recovers', async () => {
  const updates = updatesOf(await open());
  await next(updates);
  overview = () => Promise.reject(new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, 'it is gone'));
  resized?.();
  expect(await next(updates)).toEqual({ state: '<p class="bad">BACKEND_UNAVAILABLE: it is gone</p>' });
  overview = () => Promise.resolve(nothing);
  resized?.();
  expect((await next(updates))['state']).toContain('ready');
});

test('a live page above the limit ends the oldest page, and is counted', async () => {
  const pages: IncomingMessage[] = [];
  for (let count = 0; count < MONITORING_LIMITS.streams; count += 1) pages.push((await open()).resume());
  const [oldest] = pages;
  const ended = once(oldest!, 'end');
  expect((await open()).statusCode).toBe(200);
  await ended;
  expect(refused).toEqual(['page_streams']);
  expect(pages.slice(1).map(({ complete }) => complete)).toEqual(Array(MONITORING_LIMITS.streams - 1).fill(false));
});

test('a live page ends after its maximum duration, and is not counted as refused', async () => {
  server.close();
  await listening({ streamMs: 20, streamAgeMs: 100 });
  const response = await open();
  await once(response.resume(), 'end');
  await expect.poll(() => watches, LONG_WAIT).toBe(0);
  expect(refused).toEqual([]);
});

test('a client that reads nothing is disconnected after the time between two updates', async () => {
  server.close();
  await listening({ streamMs: 100 });
  // Larger than the buffers of the kernel.
  overview = () => Promise.resolve({ ...nothing, pods: Array.from({ length: 40_000 }, (_, at) => podNamed(`${at}`)) });
  const socket = createConnection({ port: port(), host: '127.0.0.1' }).pause();
  opened.push(socket.on('error', () => undefined));
  socket.write('GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await expect.poll(() => refused, LONG_WAIT).toEqual(['page_updates']);
  // The next reading may still be running.
  await expect.poll(() => watches, LONG_WAIT).toBe(0);
});

test('a HEAD request for live updates ends with its headers, and opens no stream', async () => {
  const call = request({ host: '127.0.0.1', port: port(), path: '/live', method: 'HEAD', agent: false }).end();
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  await once(response.resume(), 'end');
  expect([response.statusCode, watches]).toEqual([200, 0]);
});

test('a client that disconnects before its token is read opens no stream', async () => {
  server.close();
  const folder = mkdtempSync(join(tmpdir(), 'live-'));
  const token = '0123456789abcdef0123';
  writeFileSync(join(folder, 'token'), token, { mode: 0o600 });
  await listening({ tokenMs: 0 }, join(folder, 'token'));
  const head = `GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  let arrived = 0;
  // Runs before the handler that answers and waits for the token, so the connection ends as early as possible.
  server.http.prependListener('request', ({ socket }: IncomingMessage) => {
    arrived += 1;
    if (arrived <= 10) socket.destroy();
  });
  for (let count = 0; count < 10; count += 1) {
    const socket = createConnection({ port: port(), host: '127.0.0.1' }).on('error', () => undefined);
    socket.write(head);
    await once(socket.resume(), 'close');
  }
  const call = get({ host: '127.0.0.1', port: port(), path: '/live', headers: { authorization: `Bearer ${token}` } });
  opened.push(call);
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  await next(updatesOf(response));
  rmSync(folder, { recursive: true });
  expect([arrived, refused]).toEqual([11, []]);
  call.destroy();
  await expect.poll(() => watches, LONG_WAIT).toBe(0);
});

test('a client that pipelines requests without reading answers is disconnected, and memory use stays low', async () => {
  const pods = Array.from({ length: 1000 }, (_, at) => podNamed(`a-rather-long-name-of-a-pod-${at}`));
  overview = () => Promise.resolve({ ...nothing, pods });
  const before = process.memoryUsage().rss;
  for (const first of ['/live', '/', '/metrics']) {
    const socket = createConnection({ port: port(), host: '127.0.0.1' }).pause();
    opened.push(socket.on('error', () => undefined));
    const more = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(1600);
    socket.write(`GET ${first} HTTP/1.1\r\nHost: localhost\r\n\r\n${more}`);
    await expect.poll(openConnections, LONG_WAIT).toBe(0);
  }
  expect(reads).toBeLessThan(4);
  expect(process.memoryUsage().rss - before).toBeLessThan(100 * MiB);
});

test('the table of pods is rendered once per reading for all pages and queries', async () => {
  server.close();
  await listening({ pageMs: 60_000 });
  let renderings = 0;
  const counted = {
    ...podNamed('web'),
    // If the page of a pod is not open, its row is only rendered in the table.
    get history() {
      renderings += 1;
      return [];
    },
  };
  overview = () => Promise.resolve({ ...nothing, pods: [counted, podNamed('db')] as Overview['pods'] });
  const pages = await Promise.all(['id-db', '', 'other', 'another'].map((pod) => open(`/live?pod=${pod}`)));
  const updates = pages.map(updatesOf);
  for (const one of updates) await next(one);
  for (const query of ['', '?q=web', '?pod=id-db'])
    expect(await (await fetch(`http://127.0.0.1:${port()}/${query}`)).text()).toContain('default/web');
  expect(renderings).toBe(1);
  resized?.();
  for (const one of updates) await next(one);
  expect(renderings).toBe(2);
});

test('a live page shows an internal error, and logs it, if its overview cannot be rendered', async () => {
  const broken = {
    ...podNamed('web'),
    get view(): never {
      throw new TypeError('secret');
    },
  };
  overview = () => Promise.resolve({ ...nothing, pods: [broken] });
  const updates = updatesOf(await open());
  expect(await next(updates)).toEqual({ state: '<p class="bad">internal error; see the log</p>' });
  // The details of a pod are rendered only for its own page.
  let views = 0;
  const later = {
    ...podNamed('web'),
    get view() {
      views += 1;
      if (views % 3 === 0) throw new TypeError('secret');
      return podNamed('web').view;
    },
  };
  overview = () => Promise.resolve({ ...nothing, pods: [later] });
  const ofPod = updatesOf(await open('/live?pod=id-web'));
  expect(await next(ofPod)).toEqual({ state: '<p class="bad">internal error; see the log</p>' });
  overview = () => Promise.resolve(nothing);
  resized?.();
  expect((await next(updates))['state']).toContain('ready');
  expect(logged.every((text) => text === 'status page not updated because of an internal error')).toBe(true);
  expect(logged.length).toBeGreaterThan(1);
});

test('another web site in the browser receives no live updates', async () => {
  const statusFrom = async (site: string): Promise<number> => {
    const call = get({ host: '127.0.0.1', port: port(), path: '/live', headers: { 'sec-fetch-site': site } });
    opened.push(call);
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    response.on('error', () => undefined);
    return response.statusCode ?? 0;
  };
  expect([await statusFrom('cross-site'), await statusFrom('same-site'), watches]).toEqual([403, 403, 0]);
  expect([await statusFrom('same-origin'), await statusFrom('none')]).toEqual([200, 200]);
});

test('open live pages do not count as connections, and stay open for longer than a connection', async () => {
  server.close();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  await listening({ connections: 2, connectionMs: 2000 });
  const updates = updatesOf(await open());
  await next(updates);
  const short = Array.from({ length: 4 }, () =>
    createConnection({ port: port(), host: '127.0.0.1' }).on('error', () => undefined),
  );
  opened.push(...short);
  let closed = 0;
  for (const socket of short) socket.once('close', () => (closed += 1)).resume();
  // All connections are closed: two because they are the oldest, two at their time limit. Unlike expect.poll, this does
  // not advance the fake time.
  await eventually(() => closed === 2);
  vi.advanceTimersByTime(2000);
  await expect.poll(() => closed, LONG_WAIT).toBe(4);
  resized?.();
  expect(await next(updates)).toHaveProperty('state');
});

test('a client that does not read is disconnected and counted once its updates exceed the limit', async () => {
  server.close();
  await listening({ streamBytes: 100_000 });
  const socket: Socket = createConnection({ port: port(), host: '127.0.0.1' }).pause();
  opened.push(socket.on('error', () => undefined));
  const closed = once(socket, 'close');
  let count = 0;
  overview = () => {
    count += 1;
    return Promise.resolve({
      ...nothing,
      pods: Array.from({ length: 500 }, (_, index) => podNamed(`${count}-${index}`)),
    });
  };
  socket.write('GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await expect.poll(() => resized, LONG_WAIT).toBeDefined();
  // The kernel's buffers take some megabytes first.
  await expect
    .poll(
      () => {
        resized?.();
        return refused;
      },
      { ...LONG_WAIT, interval: 5 },
    )
    .toEqual(['page_updates']);
  socket.resume();
  await closed;
  await expect.poll(() => watches, LONG_WAIT).toBe(0);
});

test('a request for live updates with another Host, or with the method POST, is rejected', async () => {
  const statusOf = async (options: object): Promise<number | undefined> => {
    const call = request({ host: '127.0.0.1', port: port(), path: '/live', agent: false, ...options }).end();
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    return response.resume().statusCode;
  };
  expect(await statusOf({ headers: { host: 'evil.example' } })).toBe(403);
  expect(await statusOf({ method: 'POST' })).toBe(405);
  expect(reads).toBe(0);
});
