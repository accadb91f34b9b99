import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  Client,
  type ClientReadableStream,
  compressionAlgorithms,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  type ServerWritableStream,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { noCounters } from '../../../src/core/observe/counters.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { Backend } from '../../../src/runtime/backend.ts';
import { type Interceptors, interceptionOf } from '../../../src/server/handlers/interceptors.ts';
import { createLocalServer } from '../../../src/server/handlers/local-server.ts';
import { localHandlers } from '../../../src/server/handlers/table.ts';
import { serveConnection } from '../../../src/server/proxy/serve.ts';

// A client that compresses its messages gets compressed responses, which the proxy cannot read. A separate client of
// the shim for them would add a target for a faulty backend.
const PATH = '/s/Events';
const identity = (bytes: Buffer): Buffer => bytes;

type EventCall = ServerWritableStream<Buffer, Buffer>;
let answer: (call: EventCall) => void;
let client: Client;
const closing: (() => unknown)[] = [];

beforeEach(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'amended-stream-'));
  const backendPath = join(folder, 'backend.sock');
  const backendServer = new Server();
  backendServer.register(PATH, (call: EventCall) => answer(call), identity, identity, 'serverStream');
  await new Promise<void>((resolve, reject) => {
    backendServer.bindAsync(`unix:${backendPath}`, ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    );
  });
  const backend = new Backend(`unix://${backendPath}`);
  const interceptors: Interceptors = {
    handlers: new Map(),
    amendments: new Map(),
    streams: new Map([[PATH, (message: Uint8Array) => Buffer.concat([message, Buffer.from('+kernel')])]]),
    delays: new Map(),
  };
  const report = { log: noLog, counters: noCounters, debug: true };
  const local = createLocalServer(localHandlers(interceptors, backend), report);
  const front = net.createServer((socket) => {
    serveConnection(socket, {
      connectBackend: (onread) => net.connect({ path: backendPath, onread }),
      connectLocal: () => local.connect(),
      interception: interceptionOf(interceptors, report),
    });
  });
  front.listen(join(folder, 'front.sock'));
  await once(front, 'listening');
  client = new Client(`unix:${join(folder, 'front.sock')}`, credentials.createInsecure(), {
    'grpc.default_compression_algorithm': compressionAlgorithms.gzip,
  });
  closing.push(
    () => client.close(),
    () => front.close(),
    () => local.close(),
    () => backend.close(),
    () => backendServer.forceShutdown(),
    () => rmSync(folder, { recursive: true }),
  );
});
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

const listen = (metadata = new Metadata()): ClientReadableStream<Buffer> =>
  client.makeServerStreamRequest(PATH, identity, identity, Buffer.from('the request '.repeat(100)), metadata);

test('KEP-1287: the events of a stream are forwarded as received to a client that compresses', async () => {
  let seen: { request: Buffer; said: unknown } | undefined;
  answer = (call) => {
    seen = { request: call.request, said: call.metadata.get('said')[0] };
    call.write(Buffer.from('first'));
    call.write(Buffer.from('second'));
    call.end();
  };
  const metadata = new Metadata();
  metadata.set('said', 'hello');
  const received: string[] = [];
  for await (const event of listen(metadata) as AsyncIterable<Buffer>) received.push(String(event));
  expect(received).toEqual(['first', 'second']);
  expect(seen).toEqual({ request: Buffer.from('the request '.repeat(100)), said: 'hello' });
});

test('a cancellation of a stream by the client ends the call to the backend', async () => {
  const ended = new Promise<void>((resolve) => {
    answer = (call) => {
      call.on('cancelled', resolve);
      call.write(Buffer.from('first'));
    };
  });
  const call = listen();
  await once(call, 'data');
  call.on('error', () => undefined);
  call.cancel();
  await ended;
});

test('an error of a stream from the backend reaches the client unchanged', async () => {
  answer = (call) => call.emit('error', { code: status.UNIMPLEMENTED, details: 'no such call' });
  const call = listen();
  call.resume();
  const [error] = (await once(call, 'error')) as [ServiceError];
  expect([error.code, error.details]).toEqual([status.UNIMPLEMENTED, 'no such call']);
});
