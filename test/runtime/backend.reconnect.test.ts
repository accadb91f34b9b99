import { mkdtempSync, rmSync } from 'node:fs';
import { type Server as NetServer, type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { isServiceError } from '../../src/core/grpc.ts';
import { NEXT_ATTEMPT_MS } from '../../src/runtime/channel/channel.ts';
import { Backend, runtimePath } from '../../src/runtime/backend.ts';

const raw = (bytes: Buffer): Buffer => bytes;
const NOTHING = Buffer.alloc(0);
/** With a backoff that doubles, the next attempt would be more than a second later. */
const FAILED_ATTEMPTS = 6;

/** The longest pause between two attempts. */
const PAUSE_MS = NEXT_ATTEMPT_MS / 2;

let folder: string;
let path: string;
let backend: Backend;
let server: Server;

async function serve(): Promise<void> {
  server = new Server();
  server.register(
    runtimePath('UpdateContainerResources'),
    (_: unknown, respond: (error: null, bytes: Buffer) => void) => respond(null, NOTHING),
    raw,
    raw,
    'unary',
  );
  await new Promise<void>((resolve) =>
    server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), () => resolve()),
  );
}

/** Resolves when the backend failed to connect several times and waits for the next try. Time passes only here. */
async function attempts(listener: NetServer, count: number): Promise<void> {
  for (let attempt = 1; attempt <= count; attempt += 1) {
    let socket: Socket | undefined;
    listener.once('connection', (accepted: Socket) => (socket = accepted));
    while (socket === undefined) {
      vi.advanceTimersByTime(PAUSE_MS);
      await lossNoticed();
    }
    socket.destroy();
  }
  await lossNoticed();
}

/** The backend notices a closed connection within a few turns of the event loop: both ends are in this process. */
async function lossNoticed(): Promise<void> {
  for (let count = 0; count < 20; count += 1) await turn();
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'reconnect-'));
  path = join(folder, 'b.sock');
  await serve();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  backend = new Backend(`unix:${path}`);
  await new Promise<void>((resolve) => backend.onConnected(resolve));
});
afterEach(() => {
  vi.useRealTimers();
  backend.close();
  server.forceShutdown();
  rmSync(folder, { recursive: true });
});

test('a call succeeds shortly after the backend is back, although several attempts to connect have failed', async () => {
  server.forceShutdown();
  const broken = createServer().listen(path);
  await attempts(broken, FAILED_ATTEMPTS);
  await new Promise((resolve) => broken.close(resolve));
  await serve();
  const call = backend.call(runtimePath('UpdateContainerResources'), NOTHING);
  vi.advanceTimersByTime(PAUSE_MS);
  await expect(call).resolves.toEqual(NOTHING);
});

test('a call to an absent backend fails after the next attempt to connect, with the reason', async () => {
  server.forceShutdown();
  const broken = createServer().listen(path);
  await attempts(broken, 1);
  await new Promise((resolve) => broken.close(resolve));
  const call = backend.call(runtimePath('UpdateContainerResources'), NOTHING);
  vi.advanceTimersByTime(NEXT_ATTEMPT_MS);
  await expect(call).rejects.toMatchObject({
    code: 14,
    details: expect.stringContaining('No connection established') as string,
  });
});

test('a call that waits for the next attempt when the shim stops, or begins after that, fails with a gRPC error', async () => {
  server.forceShutdown();
  const broken = createServer().listen(path);
  await attempts(broken, 1);
  const waiting = backend.call(runtimePath('UpdateContainerResources'), NOTHING);
  backend.close();
  await expect(waiting).rejects.toSatisfy(isServiceError);
  await expect(backend.call(runtimePath('UpdateContainerResources'), NOTHING)).rejects.toMatchObject({
    ...{ code: 14, details: 'the shim stops' },
  });
  await new Promise((resolve) => broken.close(resolve));
});

test('a call that waits for the next attempt ends at once when its caller cancels it', async () => {
  server.forceShutdown();
  const broken = createServer().listen(path);
  await attempts(broken, 1);
  const caller = new AbortController();
  const waiting = backend.call(runtimePath('UpdateContainerResources'), NOTHING, { signal: caller.signal });
  // No time passes any more: the next attempt does not begin.
  caller.abort();
  await expect(waiting).rejects.toMatchObject({ code: 1 });
  await new Promise((resolve) => broken.close(resolve));
});
