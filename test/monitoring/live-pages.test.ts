import { once } from 'node:events';
import { type IncomingMessage, get, request } from 'node:http';
import { type AddressInfo, type Socket, createConnection } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Code, Reason, ShimError } from '../../src/core/errors/index.ts';
import { type MonitoringServer, createMonitoringServer } from '../../src/monitoring/index.ts';
import { MONITORING_LIMITS, type MonitoringLimits } from '../../src/monitoring/limits.ts';
import { noLog } from '../../src/observe/index.ts';
import type { Overview } from '../../src/resize/report/overview.ts';

const nothing: Overview = { pods: [], recent: [], history: [] };

let server: MonitoringServer;
let overview: () => Promise<Overview>;
let refused: string[];
let resized: (() => void) | undefined;
let watches: number;
let reads: number;
const opened: { destroy(): unknown }[] = [];
const port = (): number => (server.http.address() as AddressInfo).port;

async function listening(limits: Partial<MonitoringLimits> = {}): Promise<void> {
  server = createMonitoringServer(
    {
      version: '1.2.3',
      counted: [],
      readiness: () => Promise.resolve({ ready: true, checks: [] }),
      node: () => ({ pods: 0, volumes: { count: 0, size: 0, used: 0 }, unfinished: [], foresight: false }),
      connections: () => 0,
      bypass: () => ({ start: undefined, end: undefined }),
      endpoint: () => 'unknown',
      overview: () => {
        reads += 1;
        return overview();
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
      log: noLog,
    },
    { isTcp: true },
    { ...MONITORING_LIMITS, pageMs: 0, streamMs: 3_600_000, streamPauseMs: 1, ...limits },
  );
  server.http.listen({ host: '127.0.0.1', port: 0 });
  await once(server.http, 'listening');
}

beforeEach(async () => {
  [refused, watches, reads] = [[], 0, 0];
  overview = () => Promise.resolve(nothing);
  await listening();
});
afterEach(() => {
  for (const one of opened.splice(0)) one.destroy();
  server.close();
});

async function open(path = '/live'): Promise<IncomingMessage> {
  const call = get({ host: '127.0.0.1', port: port(), path, agent: false });
  opened.push(call);
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  response.on('error', () => undefined);
  return response;
}

/** Yields what each event has. */
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
});

test('a page gets all parts first, and after a resize those that have changed', async () => {
  const response = await open();
  expect([response.statusCode, response.headers['content-type']]).toEqual([200, 'text/event-stream; charset=utf-8']);
  const updates = updatesOf(response);
  expect(Object.keys(await next(updates)).sort()).toEqual(['card', 'history', 'pods', 'resizes', 'state']);
  overview = () => Promise.resolve({ ...nothing, pods: [podNamed('web')] });
  resized?.();
  const changed = await next(updates);
  // The part state has the time.
  expect(Object.keys(changed).sort()).toEqual(['pods', 'state']);
  expect(changed['pods']).toContain('default/web');
});

test('a page of one pod gets its details', async () => {
  overview = () => Promise.resolve({ ...nothing, pods: [podNamed('web'), podNamed('db')] });
  const { card } = await next(updatesOf(await open('/live?pod=id-db')));
  expect(card).toContain('no file of db');
  expect(card).not.toContain('no file of web');
});

test('pages are updated from time to time without a resize, too', async () => {
  server.close();
  await listening({ streamMs: 20 });
  const updates = updatesOf(await open());
  await next(updates);
  expect((await next(updates))['state']).toContain('1.2.3');
});

test('nothing is read and no resize is watched while no page is open', async () => {
  const response = await open();
  await next(updatesOf(response));
  expect(watches).toBe(1);
  response.destroy();
  resized?.();
  await expect.poll(() => watches).toBe(0);
  const before = reads;
  await new Promise((resolve) => setImmediate(resolve));
  expect(reads).toBe(before);
});

test('a page that cannot be read says why, and recovers', async () => {
  const updates = updatesOf(await open());
  await next(updates);
  overview = () => Promise.reject(new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, 'it is gone'));
  resized?.();
  expect(await next(updates)).toEqual({ state: '<p class="bad">BACKEND_UNAVAILABLE: it is gone</p>' });
  overview = () => Promise.resolve(nothing);
  resized?.();
  expect((await next(updates))['state']).toContain('ready');
});

test('more pages than the limit are refused and counted, and a closed one makes room', async () => {
  const pages = await Promise.all(Array.from({ length: MONITORING_LIMITS.streams }, () => open()));
  const refusal = await open();
  expect([refusal.statusCode, refused]).toEqual([503, ['page_streams']]);
  pages[0]!.destroy();
  await expect.poll(async () => (await open()).statusCode).toBe(200);
});

test('open pages do not count as connections, and stay open for longer than one', async () => {
  server.close();
  await listening({ connections: 2, connectionMs: 50 });
  const updates = updatesOf(await open());
  await next(updates);
  const short = Array.from({ length: 4 }, () =>
    createConnection({ port: port(), host: '127.0.0.1' }).on('error', () => undefined),
  );
  opened.push(...short);
  // All of them are closed: two as the oldest, two when their time is over.
  await Promise.all(short.map((socket) => once(socket.resume(), 'close')));
  resized?.();
  expect(await next(updates)).toHaveProperty('state');
});

test('a page that does not read is cut and counted once its updates exceed the limit', async () => {
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
  await expect.poll(() => resized).toBeDefined();
  // The kernel's buffers take some megabytes first.
  await expect
    .poll(
      () => {
        resized?.();
        return refused;
      },
      { interval: 5, timeout: 20_000 },
    )
    .toEqual(['page_updates']);
  socket.resume();
  await closed;
  await expect.poll(() => watches).toBe(0);
});

test('a page of another host, and one without the right method, is refused', async () => {
  const statusOf = async (options: object): Promise<number | undefined> => {
    const call = request({ host: '127.0.0.1', port: port(), path: '/live', agent: false, ...options }).end();
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    return response.resume().statusCode;
  };
  expect(await statusOf({ headers: { host: 'evil.example' } })).toBe(403);
  expect(await statusOf({ method: 'POST' })).toBe(405);
  expect(reads).toBe(0);
});
