import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http2';
import type { Http2Server, ServerHttp2Stream } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Connection } from '../../../bench/client/connection.ts';

let folder: string;
let server: Http2Server;
let connection: Connection;

/** Answers `/echo` with the request, `/large` with 600 KB, others NOT_FOUND. node:http2 validates the frames. */
function answer(stream: ServerHttp2Stream, path: string): void {
  const parts: Buffer[] = [];
  stream.on('data', (part: Buffer) => parts.push(part));
  stream.on('end', () => {
    const found = path === '/echo' || path === '/large';
    stream.respond({ 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': found ? '0' : '5', 'grpc-message': 'gone' }));
    stream.end(path === '/large' ? Buffer.alloc(600_000) : Buffer.concat(parts));
  });
}

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'bench-connection-'));
  server = createServer();
  server.on('stream', (stream, headers) => answer(stream, headers[':path'] ?? ''));
  const socket = join(folder, 'socket');
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  connection = await Connection.open(socket);
});

afterEach(async () => {
  connection.close();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true });
});

test('makes calls in sequence and concurrently', async () => {
  const calls = Array.from({ length: 40 }, (_, index) => ({ path: '/echo', request: Buffer.from(`call ${index}`) }));
  for (const call of calls) expect(await connection.call(call)).toEqual(call.request);
  expect(await Promise.all(calls.map((call) => connection.call(call)))).toEqual(calls.map(({ request }) => request));
});

test('sends window updates, so that large answers do not stall', async () => {
  for (let index = 0; index < 8; index += 1) {
    const response = await connection.call({ path: '/large', request: Buffer.alloc(0) });
    expect(response.length).toBe(600_000 - 5);
  }
});

test('sends more request data than the initial window of the server allows', async () => {
  const call = { path: '/echo', request: Buffer.alloc(16_000) };
  for (let index = 0; index < 40; index += 1) expect((await connection.call(call)).length).toBe(16_000);
});

test('rejects a call that fails, and a call on a closed connection', async () => {
  await expect(connection.call({ path: '/none', request: Buffer.alloc(0) })).rejects.toThrow('status 5 gone');
  connection.close();
  await expect(connection.call({ path: '/echo', request: Buffer.alloc(0) })).rejects.toThrow();
});
