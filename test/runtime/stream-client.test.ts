import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { Metadata as JsMetadata, Server, ServerCredentials, type ServerWritableStream } from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type ServiceError, isServiceError } from '../../src/core/errors/index.ts';
import { Code, Metadata } from '../../src/core/grpc/index.ts';
import { FailureLog, type LogFields, noLog } from '../../src/observe/index.ts';
import { Backend, type CallOptions } from '../../src/runtime/index.ts';

// The client for streams is loaded with the first of them.
const loaded = vi.hoisted((): { clients: number; fails: string | undefined } => ({ clients: 0, fails: undefined }));
vi.mock(import('../../src/runtime/stream-client.ts'), async (original) => {
  const { StreamClient } = await original();
  class Counted extends StreamClient {
    constructor(...given: ConstructorParameters<typeof StreamClient>) {
      if (loaded.fails !== undefined) throw new Error(loaded.fails);
      super(...given);
      loaded.clients += 1;
    }
  }
  return { StreamClient: Counted };
});

const PATH = '/s/Events';
const raw = (bytes: Buffer): Buffer => bytes;
type Call = ServerWritableStream<Buffer, Buffer>;

let folder: string;
let server: Server;
let backend: Backend;
let lines: [string, LogFields][];
let answer: (call: Call) => void;

beforeEach(async () => {
  Object.assign(loaded, { clients: 0, fails: undefined });
  lines = [];
  folder = mkdtempSync(join(tmpdir(), 'streams-'));
  const address = `unix://${join(folder, 'cri.sock')}`;
  server = new Server();
  server.register(PATH, (call: Call) => answer(call), raw, raw, 'serverStream');
  await new Promise((resolve) => server.bindAsync(address, ServerCredentials.createInsecure(), resolve));
  const write = (fields: LogFields, text: string): void => void lines.push([text, fields]);
  const log = { ...noLog, error: write, info: write };
  backend = new Backend(address, new FailureLog(log, { failed: 'not loaded', over: 'loaded' }));
});
afterEach(() => {
  backend.close();
  server.forceShutdown();
  rmSync(folder, { recursive: true });
});

const messages = (options?: CallOptions): Promise<string[]> =>
  Readable.from(backend.stream(PATH, Buffer.from('ask'), options))
    .map(String)
    .toArray() as Promise<string[]>;

async function failureOf(running: Promise<unknown>): Promise<ServiceError> {
  const error = await running.catch((reason: unknown) => reason);
  if (!isServiceError(error)) throw new Error('no ServiceError', { cause: error });
  return error;
}

test('streams carry request and metadata, and share one client that the first ones load', async () => {
  answer = (call) => {
    call.write(call.request);
    for (const name of ['x-id', 'x-bytes-bin']) call.write(Buffer.from(call.metadata.get(name).join()));
    call.end();
  };
  const metadata = new Metadata();
  metadata.add('x-id', 'a');
  metadata.add('x-id', 'b');
  metadata.add('x-bytes-bin', 'YnVmZmVy');
  expect(await Promise.all([messages({ metadata }), messages({ metadata })])).toEqual([
    ['ask', 'a, b', 'buffer'],
    ['ask', 'a, b', 'buffer'],
  ]);
  expect((await messages({ metadata }))[0]).toBe('ask');
  expect(loaded.clients).toBe(1);
});

test('the error of a stream has its status and trailers', async () => {
  answer = (call) => {
    const metadata = new JsMetadata();
    metadata.add('x-why', 'full');
    metadata.add('x-why', 'slow');
    metadata.add('grpc-status-details-bin', Buffer.of(1, 255));
    call.emit('error', { code: Code.RESOURCE_EXHAUSTED, details: 'no room', metadata });
  };
  const error = await failureOf(messages());
  expect([error.code, error.details]).toEqual([Code.RESOURCE_EXHAUSTED, 'no room']);
  expect(error.metadata).toBeInstanceOf(Metadata);
  expect(error.metadata.get('x-why')).toEqual(['full, slow']);
  expect(error.metadata.get('grpc-status-details-bin')).toEqual([Buffer.of(1, 255)]);
});

test('a call with more than 64 KiB of metadata is refused: each value would be sent with its name', async () => {
  const metadata = new Metadata();
  metadata.add(`${'a'.repeat(7000)}-bin`, ','.repeat(10));
  expect(await failureOf(messages({ metadata }))).toMatchObject({
    code: Code.RESOURCE_EXHAUSTED,
    details: 'metadata of more than 65536 bytes',
  });
});

test('a client that cannot be loaded is an error of its calls, and the next call loads it', async () => {
  answer = (call) => call.end();
  loaded.fails = 'no memory';
  const failed = await Promise.allSettled([messages(), messages()]);
  for (const { reason } of failed as PromiseRejectedResult[])
    expect(reason).toMatchObject({ code: Code.UNAVAILABLE, reason: 'STREAMS_UNAVAILABLE' });
  loaded.fails = undefined;
  expect(await messages()).toEqual([]);
  expect(loaded.clients).toBe(1);
});

test('a client that cannot be loaded is logged once for each cause, with the number of failures', async () => {
  answer = (call) => call.end();
  for (const text of ['no memory', 'no memory', 'no file']) {
    loaded.fails = text;
    await expect(messages()).rejects.toThrow(`the client for streams cannot be loaded: ${text}`);
  }
  loaded.fails = undefined;
  expect(await messages()).toEqual([]);
  expect(await messages()).toEqual([]);
  expect(lines).toMatchObject([
    ['not loaded', { error: 'Error', because: 'no memory' }],
    ['not loaded', { because: 'no file', failures: 2 }],
    ['loaded', { failures: 1 }],
  ]);
});

test('a call ends early, also before its client is loaded', async () => {
  answer = (call) => call.write(Buffer.from('first'));
  expect(await failureOf(messages({ signal: AbortSignal.abort() }))).toMatchObject({ code: Code.CANCELLED });
  expect(await failureOf(messages({ deadline: -1 }))).toMatchObject({ code: Code.DEADLINE_EXCEEDED });
  const abort = new AbortController();
  const events = backend.stream(PATH, Buffer.alloc(0), { signal: abort.signal });
  expect(String((await events.next()).value)).toBe('first');
  abort.abort();
  expect(await failureOf(events.next())).toMatchObject({ code: Code.CANCELLED });
});

test('a listener that stops ends the call at the backend', async () => {
  const cancelled = new Promise((resolve) => {
    answer = (call) => {
      call.write(Buffer.from('first'));
      call.once('cancelled', resolve);
    };
  });
  for await (const event of backend.stream(PATH, Buffer.alloc(0))) {
    expect(String(event)).toBe('first');
    break;
  }
  await cancelled;
});

test('a closed backend makes no streams', async () => {
  const running = messages();
  backend.close();
  expect(await failureOf(running)).toMatchObject({ code: Code.UNAVAILABLE, details: 'the shim stops' });
});
