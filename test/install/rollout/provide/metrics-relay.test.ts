import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type RequestListener, type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { relayMetrics } from '../../../../src/install/rollout/provide/metrics-relay.ts';

let folder: string;
let socket: string;
let relay: Server;
let shim: Server | undefined;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'relay-'));
  socket = join(folder, 'metrics.sock');
  relay = await relayMetrics(0, socket);
});
afterEach(() => {
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

test('the metrics of the shim are served as it serves them, with the token of the scraper', async () => {
  await serve(({ url, headers: { authorization, accept, host } }, response) => {
    response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4' });
    response.end(JSON.stringify({ url, authorization, accept, host }));
  });
  const answer = await get('/metrics', { headers: { authorization: 'Bearer abc', accept: 'text/plain' } });
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/plain; version=0.0.4']);
  expect(await answer.json()).toEqual({
    ...{ url: '/metrics', authorization: 'Bearer abc', accept: 'text/plain', host: 'localhost' },
  });
});

test('the status of the shim is passed on', async () => {
  await serve((_, response) => response.writeHead(401).end('no token'));
  expect((await get('/metrics')).status).toBe(401);
});

test('a shim that does not run is a failed scrape, and its return is noticed', async () => {
  const answer = await get('/metrics');
  expect([answer.status, await answer.text()]).toEqual([502, 'the shim does not answer: ENOENT\n']);
  await serve((_, response) => response.end('up'));
  expect((await get('/metrics')).status).toBe(200);
});

test('a shim that breaks off breaks off the scrape', async () => {
  await serve((_, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('a', () => response.destroy());
  });
  await expect(get('/metrics').then((answer) => answer.text())).rejects.toThrow();
});

test.each([
  ['/', 'GET'],
  ['/readyz', 'GET'],
  ['/metrics?x=1', 'GET'],
  ['/metrics', 'POST'],
])('%s by %s never reaches the shim', async (path, method) => {
  let calls = 0;
  await serve((_, response) => ((calls += 1), response.end()));
  expect((await get(path, { method })).status).toBe(404);
  expect(calls).toBe(0);
});
