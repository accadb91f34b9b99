import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MAX_CALLS } from '../../src/runtime/channel/channel.ts';
import { failure, type Outcome } from '../../src/runtime/channel/outcome.ts';
import { MessageReader, ResponseMemory } from '../../src/runtime/channel/response.ts';
import { Backend, type CallOptions, MAX_MESSAGE_BYTES, runtimePath } from '../../src/runtime/backend.ts';
import { isNeverSent, isNotServing, isUnanswered } from '../../src/runtime/backend-errors.ts';
import { RawServer } from '../support/http2/raw-server.ts';

const UPDATE = runtimePath('UpdateContainerResources');
let server: RawServer;
let backend: Backend;

beforeEach(async () => {
  server = new RawServer();
  await server.listen((peer) => peer.greet([3, 0]));
  backend = new Backend(`unix://${server.path}`);
  await new Promise<void>((resolve) => backend.onConnected(resolve));
});
afterEach(async () => {
  vi.useRealTimers();
  backend.close();
  await server.remove();
});

const failed = (request: Buffer, options?: CallOptions): Promise<unknown> =>
  backend.call(UPDATE, request, options).catch((error: unknown) => error);
/** The call can have no effect, and the backend cannot be asked at present. */
const expectUnsent = (error: unknown): void =>
  expect([isNeverSent(error), isUnanswered(error), isNotServing(error)]).toEqual([true, false, true]);

test('a call that the shim rejects because of its own limits counts as unsent', async () => {
  const abort = new AbortController();
  const { signal } = abort;
  const waiting = Array.from({ length: MAX_CALLS }, () => backend.call(UPDATE, Buffer.alloc(0), { signal }));
  const ended = Promise.allSettled(waiting);
  const refused = await failed(Buffer.alloc(0));
  expect(refused).toMatchObject({ code: status.UNAVAILABLE });
  expectUnsent(refused);
  expect(await backend.responds()).toBe(false);
  abort.abort();
  await ended;
});

test('a request that is too large counts as unsent', async () => {
  const refused = await failed(Buffer.alloc(MAX_MESSAGE_BYTES + 1));
  expect(refused).toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  expectUnsent(refused);
});

test('a call after its deadline, or after the backend is closed, counts as unsent', async () => {
  const late = await failed(Buffer.alloc(0), { deadline: performance.now() - 1 });
  expect(late).toMatchObject({ code: status.DEADLINE_EXCEEDED });
  expectUnsent(late);
  backend.close();
  expectUnsent(await failed(Buffer.alloc(0)));
});

test('a call that gets no connection counts as unsent', async () => {
  const away = new Backend(`unix://${server.path}-none`);
  const unconnected = await away.call(UPDATE, Buffer.alloc(0)).catch((error: unknown) => error);
  away.close();
  expect(unconnected).toMatchObject({ code: status.UNAVAILABLE });
  expectUnsent(unconnected);
});

test('a sent call whose deadline passes counts as unanswered, since it may have an effect', async () => {
  const slow = new RawServer();
  await slow.listen((peer) => peer.greet());
  const other = new Backend(`unix://${slow.path}`);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const options = { deadline: performance.now() + 200 };
  const call = other.call(UPDATE, Buffer.alloc(0), options).catch((error: unknown) => error);
  await (await slow.peer()).requests();
  vi.advanceTimersByTime(200);
  const late = await call;
  other.close();
  await slow.remove();
  expect([isNeverSent(late), isUnanswered(late), isNotServing(late)]).toEqual([false, true, true]);
});

const take = (memory: number, limit: number): Outcome | undefined =>
  new MessageReader(new ResponseMemory(memory), limit).take(Buffer.of(0, 0, 0, 0, 20, 1));

test.each([
  ['that has no memory left leaves the outcome of an update open', take(10, 100), true],
  ['that is too large is an answer: the backend has finished the update', take(100, 10), false],
])('a response %s', (_, outcome, isOpen) => {
  expect(outcome).toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  const error = outcome && failure(outcome);
  expect([isUnanswered(error), isNotServing(error)]).toEqual([isOpen, isOpen]);
});
