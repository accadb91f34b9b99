import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Server, ServerCredentials, type sendUnaryData, status } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { isServiceError } from '../../src/core/grpc.ts';
import { Backend, runtimePath } from '../../src/runtime/backend.ts';
import { isUnimplemented } from '../../src/runtime/backend-errors.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

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
