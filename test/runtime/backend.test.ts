import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { sendUnaryData } from '@grpc/grpc-js';
import { Server, ServerCredentials, status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { isServiceError } from '../../src/core/grpc.ts';
import type { CallOptions } from '../../src/runtime/backend.ts';
import { ANSWER_MS, Backend, MAX_MESSAGE_BYTES, runtimePath } from '../../src/runtime/backend.ts';
import { isNeverSent, isNotServing, isUnanswered, isUnimplemented } from '../../src/runtime/backend-errors.ts';
import { MAX_CALLS } from '../../src/runtime/channel/channel.ts';
import type { Outcome } from '../../src/runtime/channel/outcome.ts';
import { failure } from '../../src/runtime/channel/outcome.ts';
import { MessageReader, ResponseMemory } from '../../src/runtime/channel/response.ts';
import { eventually } from '../support/fake-clock.ts';
import { RawServer } from '../support/http2/raw-server.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

let backend: Backend;

/** Starts a gRPC server without any method, so that each call is answered UNIMPLEMENTED. */
async function serve(address: string): Promise<Server> {
  const server = new Server();
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
  return server;
}

test('a method that a backend lacks is remembered until the next connection', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'backend-'));
  const address = `unix://${join(folder, 'cri.sock')}`;
  const first = await serve(address);
  const backend = new Backend(address);
  let connected = 0;
  backend.onConnected(() => (connected += 1));
  const ask = async (): Promise<unknown> =>
    backend.runtime('UpdatePodSandboxResources', {}).catch((error: unknown) => error);
  expect(backend.lacks('UpdatePodSandboxResources')).toBe(false);
  expect(isUnimplemented(await ask())).toBe(true);
  expect(backend.lacks('UpdatePodSandboxResources')).toBe(true);
  expect(backend.lacks('Status')).toBe(false);

  first.forceShutdown();
  rmSync(join(folder, 'cri.sock'), { force: true });
  const second = await serve(address);
  await expect.poll(() => connected, LONG_WAIT).toBe(2);
  expect(backend.lacks('UpdatePodSandboxResources')).toBe(false);
  backend.close();
  second.forceShutdown();
  rmSync(folder, { recursive: true });
});

test('a response that is not a valid CRI message fails the call with INTERNAL and the name of the expected message', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'backend-'));
  const address = `unix://${join(folder, 'cri.sock')}`;
  const server = new Server();
  // A string that is not UTF-8, and a sub-message that is longer than the answer.
  const answers = [Buffer.of(0x12, 4, 0x0a, 2, 0xc3, 0x28), Buffer.of(0x0a, 200)];
  const raw = (bytes: Buffer): Buffer => bytes;
  const answer = (_: unknown, respond: sendUnaryData<Buffer>): void => respond(null, answers.shift() ?? null);
  server.register(runtimePath('PodSandboxStatus'), answer, raw, raw, 'unary');
  await new Promise((resolve) => server.bindAsync(address, ServerCredentials.createInsecure(), resolve));
  const backend = new Backend(address);
  while (answers.length > 0) {
    const error = await backend.runtime('PodSandboxStatus', {}).catch((reason: unknown) => reason);
    expect(isServiceError(error) && [error.code, error.details]).toEqual([
      status.INTERNAL,
      'the answer to PodSandboxStatus is not a PodSandboxStatusResponse',
    ]);
  }
  backend.close();
  server.forceShutdown();
  rmSync(folder, { recursive: true });
});

test('an invalid gRPC status from the backend becomes UNKNOWN', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'backend-'));
  const path = join(folder, 'cri.sock');
  const server = createServer();
  server.on('stream', (stream) => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': 'x' }, { endStream: true });
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  const backend = new Backend(`unix://${path}`);
  const unary = await backend.runtime('Status', {}).catch((reason: unknown) => reason);
  expect(isServiceError(unary) && unary.code).toBe(status.UNKNOWN);
  backend.close();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

describe('limits of a call', () => {
  const UPDATE = runtimePath('UpdateContainerResources');
  let server: RawServer;

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
  /** Expects an error of a call that was never sent, while the backend does not serve. */
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
});

describe('responses of the backend', () => {
  const raw = (bytes: Buffer): Buffer => bytes;
  let folder: string;
  let server: Server;
  let calls: number;
  let hangs: boolean;

  beforeEach(async () => {
    [calls, hangs] = [0, false];
    folder = mkdtempSync(join(tmpdir(), 'responds-'));
    server = new Server();
    const answer = (_: unknown, respond: (error: null, bytes: Buffer) => void): void => {
      calls += 1;
      if (!hangs) respond(null, Buffer.alloc(0));
    };
    server.register(runtimePath('Version'), answer, raw, raw, 'unary');
    await new Promise((resolve) =>
      server.bindAsync(`unix:${folder}/b.sock`, ServerCredentials.createInsecure(), () => resolve(undefined)),
    );
    backend = new Backend(`unix://${folder}/b.sock`);
    await new Promise<void>((resolve) => backend.onConnected(resolve));
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
  });

  afterEach(() => {
    vi.useRealTimers();
    backend.close();
    server.forceShutdown();
    rmSync(folder, { recursive: true });
  });

  test('a backend that answers counts as responding, and several callers share one request', async () => {
    expect(await Promise.all([backend.responds(), backend.responds()])).toEqual([true, true]);
    expect(await backend.responds()).toBe(true);
    expect(calls).toBe(1);
  });

  test('M6: a backend that hangs does not respond, though it is connected', async () => {
    hangs = true;
    const responds = backend.responds();
    // Unlike vi.waitFor and expect.poll, this does not advance the fake time.
    await eventually(() => calls === 1);
    vi.advanceTimersByTime(ANSWER_MS);
    expect([backend.isConnected, await responds]).toEqual([true, false]);
  });

  test('an answer of the backend counts for one second, even if the system time is set back', async () => {
    expect(await backend.responds()).toBe(true);
    vi.advanceTimersByTime(1001);
    vi.setSystemTime(Date.now() - 3_600_000);
    expect(await backend.responds()).toBe(true);
    expect(calls).toBe(2);
  });
});
