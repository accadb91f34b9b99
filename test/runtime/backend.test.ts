import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { Backend, isUnimplemented } from '../../src/runtime/index.ts';

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
  await expect.poll(() => connected).toBe(2);
  expect(backend.lacks('UpdatePodSandboxResources')).toBe(false);
  backend.close();
  second.forceShutdown();
  rmSync(folder, { recursive: true });
});
