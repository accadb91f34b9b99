import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { ServerSocket } from '../../../src/runtime/channel/server-socket.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const folder = mkdtempSync(join(tmpdir(), 'server-socket-'));
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true });
});

test('the time without reads by the server counts from the moment when too much data waits for it', async () => {
  const server = createServer().listen(join(folder, 's.sock'));
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  const paused: number[] = [];
  let now = 1000;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
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
  now += 4000;
  peer.resume();
  await expect.poll(() => paused, LONG_WAIT).toEqual([4000]);
  socket.end();
  peer.destroy();
  await new Promise((resolve) => server.close(resolve));
});
