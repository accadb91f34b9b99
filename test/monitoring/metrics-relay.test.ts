import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { isShimEnabled } from '../../src/kubelet/endpoint/drift.ts';
import { relayMetrics } from '../../src/monitoring/metrics-relay.ts';
import { eventually } from '../support/fake-clock.ts';

let folder: string;
let socket: string;
/** The link by which systemd starts the shim at boot. */
let enabled: string;
let relay: Server;
let shim: Server | undefined;
/** Connections that the relay has accepted. */
let connected: number;
const clients: Socket[] = [];
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'relay-'));
  socket = join(folder, 'metrics.sock');
  const wants = join(folder, 'etc/systemd/system/multi-user.target.wants');
  mkdirSync(wants, { recursive: true });
  enabled = join(wants, 'cri-resize-shim.service');
  symlinkSync('/nowhere', enabled);
  relay = await relayMetrics(0, socket, () => isShimEnabled(folder));
  connected = 0;
  relay.on('connection', () => (connected += 1));
});
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  for (const server of [relay, shim]) {
    server?.close();
    server?.closeAllConnections();
  }
  shim = undefined;
  rmSync(folder, { recursive: true });
});

async function serve(answer: RequestListener): Promise<void> {
  shim = createServer(answer).listen(socket);
  await once(shim, 'listening');
}
const get = (path: string, options: RequestInit = {}): Promise<Response> =>
  fetch(`http://127.0.0.1:${(relay.address() as AddressInfo).port}${path}`, options);

/** Opens a connection to the relay, and sends a text. */
async function send(text: string): Promise<Socket> {
  const client = connect((relay.address() as AddressInfo).port, '127.0.0.1');
  clients.push(client);
  // The relay closes connections of clients that use too much.
  client.on('error', () => undefined);
  await once(client, 'connect');
  if (text !== '') client.write(text);
  return client;
}

const SCRAPE = 'GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n';

test('the relay returns the metrics of the shim with their content type, and closes the connection', async () => {
  await serve(({ url, headers: { host } }, response) => {
    response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4' });
    response.end(JSON.stringify({ url, host }));
  });
  const answer = await get('/metrics', { headers: { authorization: 'Bearer abc', accept: 'text/plain' } });
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/plain; version=0.0.4']);
  expect(await answer.json()).toEqual({ url: '/metrics', host: 'localhost' });
  expect(answer.headers.get('connection')).toBe('close');
});

test('a shim with a token serves its metrics only to a scraper with the token', async () => {
  await serve(({ headers: { authorization } }, response) =>
    authorization === 'Bearer abc' ? response.end('metrics') : response.writeHead(401).end('no token'),
  );
  const statusWith = async (headers: Record<string, string>) => (await get('/metrics', { headers })).status;
  expect(await statusWith({ authorization: 'Bearer abc' })).toBe(200);
  const all = [{}, { authorization: 'Bearer abc' }, { authorization: 'Bearer x' }, { authorization: 'Bearer abc' }];
  expect(await Promise.all(all.map(statusWith))).toEqual([401, 200, 401, 200]);
});

test('connections that send nothing do not make a scrape fail', async () => {
  await serve((_, response) => response.end('up'));
  for (let count = 0; count < 40; count += 1) await send('');
  expect(await (await get('/metrics')).text()).toBe('up');
});

test('a connection has one request, and further requests without a wait close it', async () => {
  let calls = 0;
  await serve((_, response) => ((calls += 1), response.end('x'.repeat(100_000))));
  const flooding = await send(SCRAPE.repeat(1500));
  await once(flooding, 'close');
  expect(calls).toBeLessThanOrEqual(1);
  expect(await (await get('/metrics')).text()).toHaveLength(100_000);
});

test('concurrent requests share one call to a shim without a token, with any authorization', async () => {
  let running = 0;
  let most = 0;
  let calls = 0;
  const waiting: (() => void)[] = [];
  await serve((_, response) => {
    calls += 1;
    most = Math.max(most, (running += 1));
    waiting.push(() => ((running -= 1), response.end('up')));
    if (calls > 1) waiting.pop()?.();
  });
  const scrapes = Array.from({ length: 12 }, (_, count) =>
    get('/metrics', { headers: { authorization: `Bearer ${count}` } }).then((answer) => answer.text()),
  );
  await eventually(() => waiting.length === 1 && connected >= 12);
  waiting.pop()?.();
  expect(new Set(await Promise.all(scrapes))).toEqual(new Set(['up']));
  expect([calls, most]).toEqual([1, 1]);
});

test('the relay calls a shim with a token for one authorization at a time', async () => {
  let running = 0;
  let most = 0;
  await serve(({ headers: { authorization } }, response) => {
    most = Math.max(most, (running += 1));
    setImmediate(() => ((running -= 1), response.writeHead(authorization === 'Bearer 7' ? 200 : 401).end()));
  });
  const statuses = await Promise.all(
    Array.from({ length: 12 }, async (_, count) => {
      const answer = await get('/metrics', { headers: { authorization: `Bearer ${count}` } });
      return answer.status;
    }),
  );
  expect(statuses.filter((status) => status === 200)).toHaveLength(1);
  expect(statuses[7]).toBe(200);
  expect(most).toBe(1);
});

test('the relay drops the calls of clients that have gone, and calls a shim with a token for those that still wait', async () => {
  const asked: string[] = [];
  const held: (() => void)[] = [];
  await serve(({ headers: { authorization } }, response) => {
    const answer = (): unknown => response.writeHead(401).end();
    if (authorization === undefined) return answer();
    asked.push(authorization);
    return asked.length === 1 ? held.push(answer) : answer();
  });
  const arrived: string[] = [];
  relay.on('request', ({ headers }) => arrived.push(headers.authorization ?? ''));
  const flood = Array.from({ length: 40 }, (_, count) => `Bearer ${count}`);
  for (const authorization of flood) {
    await send(`GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: ${authorization}\r\n\r\n`);
    await eventually(() => arrived.at(-1) === authorization);
    if (authorization === flood[0]) await eventually(() => held.length === 1);
  }
  await eventually(() => clients.filter(({ destroyed }) => destroyed).length >= 24);
  held.pop()?.();
  await eventually(() => asked.at(-1) === flood.at(-1));
  // The first call is already in progress, and the relay accepts 16 connections.
  expect(asked).toEqual([flood[0], ...flood.slice(-16)]);
});

test('the relay returns the status of the shim', async () => {
  await serve((_, response) => response.writeHead(401).end('no token'));
  expect((await get('/metrics')).status).toBe(401);
});

test('a scrape fails while the shim does not run, and succeeds once it runs', async () => {
  const answer = await get('/metrics');
  expect([answer.status, await answer.text()]).toEqual([502, 'the shim does not answer: ENOENT\n']);
  await serve((_, response) => response.end('up'));
  expect((await get('/metrics')).status).toBe(200);
});

test('a scrape succeeds without metrics if the node waits for its first turn, or if its shim was removed', async () => {
  rmSync(enabled);
  const answer = await get('/metrics');
  expect([answer.status, await answer.text()]).toEqual([200, '']);
  expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4');
});

test('a scrape fails if the host cannot be read', async () => {
  rmSync(join(folder, 'etc/systemd'), { recursive: true });
  symlinkSync('systemd', join(folder, 'etc/systemd'));
  expect((await get('/metrics')).status).toBe(502);
});

test('a scrape fails if the shim breaks off its answer', async () => {
  await serve((_, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('a', () => response.destroy());
  });
  expect((await get('/metrics')).status).toBe(502);
});

test('a scrape fails if the answer of the shim is too long', async () => {
  await serve((_, response) => response.end('x'.repeat(5 * MiB)));
  const answer = await get('/metrics');
  expect([answer.status, await answer.text()]).toEqual([
    502,
    'the shim does not answer: the answer is longer than 4194304 bytes\n',
  ]);
});

test.each([
  ['/', 'GET'],
  ['/readyz', 'GET'],
  ['/metrics?x=1', 'GET'],
  ['/metrics', 'POST'],
])('a request for %s by %s is not forwarded to the shim', async (path, method) => {
  let calls = 0;
  await serve((_, response) => ((calls += 1), response.end()));
  expect((await get(path, { method })).status).toBe(404);
  expect(calls).toBe(0);
});
