import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect, type OutgoingHttpHeaders } from 'node:http2';
import { createConnection, type Socket } from 'node:net';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { greeting, openRaw, writeRaw as write } from '../support/http2/raw-server.ts';
import { data, goaway, headers, message, request } from '../support/http2/wire.ts';

const UPDATE = '/runtime.v1.RuntimeService/UpdateContainerResources';
const STATUS = '/runtime.v1.RuntimeService/ContainerStatus';

/** Opens a connection that reads and drops everything. */
const open = async (path: string, ...pairs: [id: number, value: number][]): Promise<Socket> =>
  (await openRaw(path, ...pairs)).resume();

/** Attacks through one connection. Ends by itself. */
export type Attack = (path: string) => Promise<void>;

/** Opens a connection that follows HTTP/2's rules, so that only the shim's budgets end its calls. */
function connectHttp2(path: string): ClientHttp2Session {
  const session = connect('http://localhost', { createConnection: () => createConnection(path) });
  return session.on('error', () => undefined).setMaxListeners(0);
}

function call(session: ClientHttp2Session, method: string, fields: OutgoingHttpHeaders = {}): ClientHttp2Stream {
  const headersOf = { ':method': 'POST', ':path': method, 'content-type': 'application/grpc', te: 'trailers' };
  const stream = session.request({ ...headersOf, ...fields });
  return stream.on('error', () => undefined).resume();
}

async function gzipBombs(path: string): Promise<void> {
  const session = connectHttp2(path);
  const bomb = message(gzipSync(Buffer.alloc(16 * MiB)), true);
  const calls = Array.from({ length: 100 }, () => call(session, UPDATE, { 'grpc-encoding': 'gzip' }));
  for (const stream of calls) stream.end(bomb);
  await Promise.race([Promise.all(calls.map((stream) => once(stream, 'close'))), delay(3000)]);
  session.destroy();
}

async function unfinishedUpdates(path: string): Promise<void> {
  const session = connectHttp2(path);
  const most = message(Buffer.alloc(16 * MiB)).subarray(0, 16 * MiB);
  for (let at = 0; at < 40; at += 1) call(session, UPDATE).write(most);
  await delay(4000);
  session.destroy();
}

async function singleBytes(path: string): Promise<void> {
  const socket = await open(path);
  await write(socket, Buffer.concat([headers(1, request(STATUS)), data(1, message(Buffer.alloc(MiB)).subarray(0, 5))]));
  const bytes = Buffer.concat(Array.from({ length: 10_000 }, () => data(1, Buffer.of(1))));
  for (let sent = 0; sent < 900_000; sent += 10_000) await write(socket, bytes);
  await delay(500);
  socket.destroy();
}

/** Does not read. Each frame makes the shim return windows in a separate write. */
async function unreadWindows(path: string): Promise<void> {
  const socket = await openRaw(path);
  await write(socket, headers(1, request(UPDATE)));
  await write(socket, data(1, message(Buffer.alloc(8 * MiB)).subarray(0, 5)));
  const bytes = data(1, Buffer.alloc(64));
  for (let sent = 0; sent < 60_000; sent += 1) {
    const isTaken = socket.write(bytes);
    await nextTurn();
    // A busy machine reads later. Once the shim has not read for a second, nothing follows.
    if (!isTaken && (await Promise.race([once(socket, 'drain'), delay(1000)])) === undefined) break;
  }
  await delay(500);
  socket.destroy();
}

async function noWindows(path: string): Promise<void> {
  const socket = await open(path, [4, 0]);
  for (let id = 1; id < 2000; id += 2) await write(socket, headers(id, request('/s/Large'), true));
  await delay(3000);
  socket.destroy();
}

async function shortConnections(path: string): Promise<void> {
  const sockets: Socket[] = [];
  for (let at = 0; at < 1000; at += 1) {
    const socket = createConnection({ path, allowHalfOpen: true }).on('error', () => undefined);
    sockets.push(socket);
    // A GOAWAY without its last byte has an invalid length.
    const cut = goaway(0, 0).subarray(0, -1);
    cut.writeUIntBE(7, 0, 3);
    socket.write(Buffer.concat([greeting(), headers(1, request(UPDATE), true), cut]));
    socket.resume();
    if (at % 20 === 0) await delay(10);
  }
  await delay(1500);
  for (const socket of sockets) socket.destroy();
}

async function idleConnections(path: string): Promise<void> {
  const sockets = Array.from({ length: 100 }, () => createConnection(path).on('error', () => undefined));
  await delay(3000);
  for (const socket of sockets) socket.destroy();
}

async function badConnections(path: string): Promise<void> {
  for (let at = 0; at < 2000; at += 1) {
    const socket = createConnection(path).on('error', () => undefined);
    socket.end('GET / HTTP/1.1\r\n\r\n');
    socket.resume();
    await Promise.race([once(socket, 'close'), delay(1000)]);
  }
}

export const attacks = {
  'H4: 100 requests of 16 KB that decompress to 16 MiB': gzipBombs,
  'H4: 40 unfinished requests of 16 MiB': unfinishedUpdates,
  'H4: a request in DATA frames of one byte': singleBytes,
  'H4: 1,000 streams without windows': noWindows,
  'H4: a client that does not read its windows': unreadWindows,
  'L1: the backend floods with PING': (path) =>
    open(path).then((socket) => delay(3000).then(() => void socket.destroy())),
  'L2: connections that send nothing': idleConnections,
  'L3: 2,000 connections that are not HTTP/2': badConnections,
  '1,000 short connections': shortConnections,
} satisfies Readonly<Record<string, Attack>>;
