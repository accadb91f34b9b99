import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { ServerSocket } from '../../../src/runtime/channel/server-socket.ts';

const folder = mkdtempSync(join(tmpdir(), 'server-socket-'));
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true });
});

test('how long the server was not read counts from the moment at which too much waits for it', async () => {
  const server = createServer().listen(join(folder, 's.sock'));
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  const paused: number[] = [];
  const read = Promise.withResolvers<undefined>();
  const socket = new ServerSocket(join(folder, 's.sock'), {
    data: () => {
      socket.writer.write(Buffer.alloc(2_097_152));
      read.resolve(undefined);
    },
    drained: (pausedMs) => paused.push(pausedMs),
    lost: () => undefined,
  });
  const [peer] = (await accepted) as [Socket];
  peer.pause();
  peer.write('x');
  await read.promise;
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + 4000);
  peer.resume();
  await expect.poll(() => paused.length).toBe(1);
  expect(paused[0]).toBeGreaterThanOrEqual(4000);
  expect(paused[0]).toBeLessThan(8000);
  socket.end();
  peer.destroy();
  await new Promise((resolve) => server.close(resolve));
});
