import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Server, type Socket, createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { SocketTransport } from '../../../src/server/proxy/transport.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let folder: string;
let server: Server;
let client: Socket;
let socket: Socket;
let transport: SocketTransport;
const drained = vi.fn();

beforeEach(async () => {
  drained.mockClear();
  folder = mkdtempSync(join(tmpdir(), 'transport-'));
  server = createServer().listen(join(folder, 's.sock'));
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  client = createConnection(join(folder, 's.sock')).pause();
  [socket] = (await accepted) as [Socket];
  transport = new SocketTransport(socket, { data: () => true, drained, closed: () => undefined });
});
afterEach(() => {
  client.destroy();
  socket.destroy();
  server.close();
  rmSync(folder, { recursive: true });
});

/** The written bytes. */
const written: Buffer[] = [];
function write(...slices: Buffer[]): void {
  written.push(...slices.map((slice) => Buffer.from(slice)));
  transport.write(
    slices,
    slices.reduce((sum, { length }) => sum + length, 0),
  );
}

/** Lets the client read until it has this many bytes, and compares them. */
async function expectAll(): Promise<void> {
  const expected = Buffer.concat(written.splice(0));
  const received: Buffer[] = [];
  let size = 0;
  client.on('data', (bytes) => {
    received.push(bytes);
    size += bytes.length;
  });
  client.resume();
  while (size < expected.length) await once(client, 'data');
  expect(Buffer.concat(received).equals(expected)).toBe(true);
}

/** Writes two slices of 13 bytes each until this many bytes wait. */
function writeSmall(most: number): void {
  for (let sent = 0; transport.backlog < most; sent += 1) write(Buffer.alloc(13, sent % 251), Buffer.alloc(13, 'w'));
}

test('small writes to a client that does not read take little more memory than their bytes', async () => {
  // The kernel takes what it can, so that the rest waits here.
  while (transport.backlog === 0) write(Buffer.alloc(4096, 'k'), Buffer.alloc(4096, 'l'));
  const calls = vi.spyOn(socket, 'write');
  const before = process.memoryUsage().arrayBuffers;
  const one = Buffer.alloc(13, 'o');
  let writes = 0;
  for (; transport.backlog < MiB; writes += 1) transport.write([one, one], 26);
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1.5 * MiB);
  expect(calls.mock.calls.length).toBeLessThan(100);
  for (let count = 0; count < writes; count += 1) written.push(one, one);
  await expectAll();
  expect(transport.backlog).toBe(0);
});

test('waiting bytes are sent in order, and then the drain is reported', async () => {
  writeSmall(3 * 16_384);
  write(Buffer.alloc(70_000, 'a'));
  write(Buffer.alloc(5000, 'b'), Buffer.alloc(5000, 'c'));
  writeSmall(transport.backlog + 20_000);
  write(Buffer.alloc(100_000, 'd'), Buffer.alloc(100_000, 'e'));
  write(Buffer.of(1));
  expect(drained).not.toHaveBeenCalled();
  await expectAll();
  await vi.waitFor(() => expect(drained).toHaveBeenCalled(), LONG_WAIT);
  expect(transport.backlog).toBe(0);
  // Once more: memory of earlier bytes may be used again.
  drained.mockClear();
  client.removeAllListeners('data').pause();
  writeSmall(50_000);
  await expectAll();
  await vi.waitFor(() => expect(drained).toHaveBeenCalled(), LONG_WAIT);
});

test('a few waiting bytes are sent without further writes', async () => {
  while (transport.backlog === 0) write(Buffer.alloc(1024, 'k'));
  write(Buffer.of(1), Buffer.of(2));
  write(Buffer.of(3));
  await expectAll();
  await vi.waitFor(() => expect(drained).toHaveBeenCalled(), LONG_WAIT);
});

test('the end of the connection is sent after the waiting bytes', async () => {
  writeSmall(5000);
  transport.end();
  const over = once(client, 'end');
  await expectAll();
  await over;
});

test('no waiting bytes are left after the connection has been destroyed', () => {
  writeSmall(5000);
  transport.destroy();
  write(Buffer.of(1), Buffer.of(2));
  expect(transport.backlog).toBe(socket.writableLength);
  written.length = 0;
});
