import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ANSWER_MS, Backend, runtimePath } from '../../src/runtime/backend.ts';
import { eventually } from '../support/fake-clock.ts';

const raw = (bytes: Buffer): Buffer => bytes;
let folder: string;
let server: Server;
let backend: Backend;
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
