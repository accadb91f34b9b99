import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection, createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { loadPeerOf } from '../../../src/server/listener/peer.ts';

afterEach(() => {
  vi.doUnmock('koffi');
  vi.resetModules();
});

test('the process of a client is known while its connection is open', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'peer-'));
  const server = createServer().listen(join(folder, 'a.sock'));
  await once(server, 'listening');
  const client = createConnection(join(folder, 'a.sock'));
  const [socket] = (await once(server, 'connection')) as [Socket];
  const peerOf = await loadPeerOf(noLog);
  expect(peerOf(socket)).toBe(process.pid);
  socket.destroy();
  await once(socket, 'close');
  expect(peerOf(socket)).toBeUndefined();
  client.destroy();
  server.close();
  rmSync(folder, { recursive: true });
});

test('the process of a client is unknown without koffi, which is logged once', async () => {
  vi.doMock('koffi', () => {
    throw new Error('no native part');
  });
  const warnings: string[] = [];
  const { loadPeerOf: load } = await import('../../../src/server/listener/peer.ts');
  const peerOf = await load({ ...noLog, warn: (_, message) => void warnings.push(message) });
  expect(peerOf(new Socket())).toBeUndefined();
  expect(warnings).toEqual(['processes of client connections unknown']);
});
