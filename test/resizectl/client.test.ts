import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ResizeClient } from '../../src/resizectl/client.ts';

let folder: string;
let server: Server;
const sockets: Socket[] = [];

/** A shim that hangs: it accepts connections and says nothing. */
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'client-'));
  server = createServer((socket) => void sockets.push(socket.on('error', () => undefined))).listen(
    join(folder, 'sock'),
  );
  await once(server, 'listening');
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
  for (const socket of sockets.splice(0)) socket.destroy();
  server.close();
  rmSync(folder, { recursive: true });
});

test('calls and watches report after 5 s what they wait for', async () => {
  const said: string[] = [];
  const client = new ResizeClient(join(folder, 'sock'), (line) => void said.push(line));
  const call = client.call('ListPods', {}, 3_600_000).catch(() => undefined);
  const watch = client.watch();
  await vi.advanceTimersByTimeAsync(4900);
  expect(said).toEqual([]);
  await vi.advanceTimersByTimeAsync(200);
  expect(said.toSorted()).toEqual([
    'still waiting for the answer to ListPods, for 5 s',
    'still waiting for the start of WatchResizes, for 5 s',
  ]);
  watch.cancel();
  await expect(watch.opened).rejects.toThrow('CANCELLED');
  client.close();
  for (const socket of sockets) socket.destroy();
  await call;
});
