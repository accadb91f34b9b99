import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Http2Server, createServer } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  Metadata as JsMetadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Channel } from '../../../src/runtime/channel/channel.ts';
import { Metadata, isServiceError } from '../../../src/core/grpc.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const LIMIT = 16_777_216;
const folder = mkdtempSync(join(tmpdir(), 'channel-'));
const raw = (bytes: Buffer): Buffer => bytes;
let channel: Channel;

interface Request {
  readonly path: string;
  readonly message?: Buffer;
  readonly metadata?: Metadata;
  readonly deadline?: number;
  readonly signal?: AbortSignal;
}

const call = ({
  path,
  message: bytes = Buffer.alloc(0),
  metadata,
  deadline = Infinity,
  signal,
}: Request): Promise<Buffer> => channel.call({ path, message: bytes, metadata, deadline, signal });

afterAll(() => rmSync(folder, { recursive: true }));

describe('a server of grpc-js', () => {
  const server = new Server({ 'grpc.max_receive_message_length': LIMIT, 'grpc.max_send_message_length': LIMIT + 5 });
  const seen: ServerUnaryCall<Buffer, Buffer>[] = [];
  const handlers: Record<string, (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>) => void> = {
    '/t/Echo': ({ request }, respond) => respond(null, request),
    '/t/Hang': (hanging) => seen.push(hanging),
    '/t/Long': (_, respond) => respond(null, Buffer.alloc(LIMIT + 1)),
    '/t/Fail': ({ metadata }, respond) => {
      const trailers = new JsMetadata();
      trailers.set('x-seen', String(metadata.get('x-id')[0]));
      trailers.set('grpc-status-details-bin', Buffer.of(1, 2, 3));
      respond({ code: status.FAILED_PRECONDITION, details: 'pod “web”: 100 % full', metadata: trailers });
    },
  };

  beforeAll(async () => {
    for (const [path, handler] of Object.entries(handlers)) server.register(path, handler, raw, raw, 'unary');
    const address = `unix:${join(folder, 'grpc.sock')}`;
    await new Promise((resolve) => server.bindAsync(address, ServerCredentials.createInsecure(), resolve));
    channel = new Channel(join(folder, 'grpc.sock'), LIMIT, () => undefined);
  });
  afterAll(() => {
    channel.close();
    server.forceShutdown();
  });

  test.each([0, 1, 16_379, 16_384, 65_531, 1_000_000, LIMIT])('a grpc-js server echoes %d bytes', async (size) => {
    const bytes = Buffer.alloc(size, 'The quick brown fox');
    expect((await call({ path: '/t/Echo', message: bytes })).equals(bytes)).toBe(true);
  });

  test('a grpc-js server echoes 300 concurrent messages', async () => {
    const sent = Array.from({ length: 300 }, (_, index) => Buffer.alloc(index * 37, `${index}`));
    const received = await Promise.all(sent.map((bytes) => call({ path: '/t/Echo', message: bytes })));
    expect(received.every((bytes, index) => sent[index]?.equals(bytes))).toBe(true);
  });

  test('a grpc-js server receives metadata, and its error details and trailers arrive', async () => {
    const metadata = new Metadata();
    metadata.add('x-id', '7');
    const error = await call({ path: '/t/Fail', metadata }).catch((reason: unknown) => reason);
    expect(isServiceError(error) && [error.code, error.details]).toEqual([9, 'pod “web”: 100 % full']);
    expect(isServiceError(error) && error.metadata.get('x-seen')).toEqual(['7']);
    expect(isServiceError(error) && error.metadata.get('grpc-status-details-bin')).toEqual([Buffer.of(1, 2, 3)]);
  });

  test('a call of a method that a grpc-js server lacks fails with UNIMPLEMENTED', async () => {
    await expect(call({ path: '/t/Missing' })).rejects.toMatchObject({ code: status.UNIMPLEMENTED });
  });

  test('a grpc-js server receives the deadline and the cancellation of a call', async () => {
    const abort = new AbortController();
    const deadline = performance.now() + 3_600_000;
    const running = call({ path: '/t/Hang', deadline, signal: abort.signal });
    running.catch(() => undefined);
    await expect.poll(() => seen.length, LONG_WAIT).toBe(1);
    const left = Number(seen[0]?.getDeadline()) - Date.now();
    expect(left).toBeGreaterThan(3_480_000);
    expect(left).toBeLessThan(3_720_000);
    const cancelled = once(seen[0]!, 'cancelled');
    abort.abort();
    await expect(running).rejects.toMatchObject({ code: status.CANCELLED });
    await cancelled;
  });

  test('a message above the maximum size from a grpc-js server fails its own call only', async () => {
    await expect(call({ path: '/t/Long' })).rejects.toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      details: `Received message larger than max (${LIMIT + 1} vs ${LIMIT})`,
    });
    expect(await call({ path: '/t/Echo', message: Buffer.of(1) })).toEqual(Buffer.of(1));
  });
});

describe('a server of node:http2', () => {
  let server: Http2Server;

  beforeAll(async () => {
    server = createServer({ settings: { initialWindowSize: 1000, maxConcurrentStreams: 3 } });
    server.on('stream', (stream) => {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
        stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
        stream.end(Buffer.concat(chunks));
      });
    });
    server.listen(join(folder, 'http2.sock'));
    await once(server, 'listening');
    channel = new Channel(join(folder, 'http2.sock'), LIMIT, () => undefined);
  });
  afterAll(async () => {
    channel.close();
    await new Promise((resolve) => server.close(resolve));
  });

  test('a node:http2 server with small windows and few streams echoes 50 messages', async () => {
    const sent = Array.from({ length: 50 }, (_, index) => Buffer.alloc(index * 701, `${index}`));
    const received = await Promise.all(sent.map((bytes) => call({ path: '/t/Echo', message: bytes })));
    expect(received.every((bytes, index) => sent[index]?.equals(bytes))).toBe(true);
  });
});
