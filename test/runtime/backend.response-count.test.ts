import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Http2Session, type ServerHttp2Stream, createServer } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isServiceError } from '../../src/core/grpc.ts';
import { Backend, runtimePath } from '../../src/runtime/backend.ts';
import { isUnimplemented } from '../../src/runtime/backend-errors.ts';
import { message } from '../support/http2/wire.ts';

/** The backend's data after its header fields. It ends with the status OK. */
let answer: (stream: ServerHttp2Stream) => Promise<void>;
let folder: string;
let backend: Backend;
const sessions = new Set<Http2Session>();
const server = createServer();
server.on('session', (session) => sessions.add(session));
server.on('stream', (stream) => {
  stream.on('error', () => undefined);
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'x-trailer': 'yes' }));
  void answer(stream).then(() => stream.end());
});

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'response-count-'));
  server.listen(join(folder, 'b.sock'));
  await once(server, 'listening');
  backend = new Backend(`unix://${join(folder, 'b.sock')}`);
});
afterEach(async () => {
  backend.close();
  for (const session of sessions) session.destroy();
  sessions.clear();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

// As calls of clients without a deadline.
const call = (): Promise<Buffer> =>
  backend.call(runtimePath('RuntimeConfig'), Buffer.alloc(0), { deadline: Number.POSITIVE_INFINITY });
const write = (stream: ServerHttp2Stream, bytes: Buffer): Promise<void> =>
  new Promise((resolve) => stream.write(bytes, () => resolve()));
const failure = async (): Promise<unknown> => call().catch((error: unknown) => error);

const one = message(Buffer.from('one'));
const MORE = 'the backend answered a unary call with more than one message';

test.each([
  ['at once', (stream: ServerHttp2Stream) => write(stream, Buffer.concat([one, message(Buffer.from('two'))]))],
  ['of many empty ones', (stream: ServerHttp2Stream) => write(stream, Buffer.alloc(1000))],
  [
    'later',
    async (stream: ServerHttp2Stream) => {
      await write(stream, one);
      // The client has read the first message when its answer to the PING is here.
      await new Promise((resolve) => stream.session?.ping(resolve));
      await write(stream, one);
    },
  ],
])('a second response message ends a unary call that has no deadline: %s', async (_, play) => {
  answer = play;
  const error = await failure();
  expect(isServiceError(error) && [error.code, error.details]).toEqual([status.INTERNAL, MORE]);
});

test('a unary call that ends with OK but without a message fails with INTERNAL, not UNIMPLEMENTED', async () => {
  answer = () => Promise.resolve();
  const error = await failure();
  expect(isServiceError(error) && [error.code, error.details]).toEqual([
    status.INTERNAL,
    'the backend answered a unary call with no message',
  ]);
  expect(isServiceError(error) && error.metadata.get('x-trailer')).toEqual(['yes']);
  expect(isUnimplemented(error)).toBe(false);
});

test('a unary call with one response message returns it, even if it is empty', async () => {
  answer = (stream) => write(stream, one);
  expect((await call()).toString()).toBe('one');
  answer = (stream) => write(stream, message(Buffer.alloc(0)));
  expect(await call()).toHaveLength(0);
});
