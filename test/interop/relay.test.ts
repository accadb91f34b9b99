import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Server, type Socket, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Relay } from './relay.ts';

let folder: string;
let path: string;
let server: Server;
let relay: Relay;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'relay-'));
  path = join(folder, 'server.sock');
  server = createServer({ allowHalfOpen: true }).listen(path);
  await once(server, 'listening');
  relay = await Relay.open({}, { path });
});
afterEach(async () => {
  await relay.close();
  server.close();
  rmSync(folder, { recursive: true });
});

async function connected(): Promise<[client: Socket, served: Socket]> {
  const client = connect({ host: '127.0.0.1', port: relay.port, allowHalfOpen: true });
  const [served] = (await once(server, 'connection')) as [Socket];
  return [client, served];
}

/** Returns what a socket receives until the other end has ended. */
async function received(socket: Socket): Promise<string> {
  let text = '';
  socket.setEncoding('latin1').on('data', (part: string) => (text += part));
  await once(socket, 'end');
  return text;
}

test('bytes pass in both directions, and one direction can end before the other', async () => {
  const [client, served] = await connected();
  const request = received(served);
  client.end('request'.repeat(100_000));
  expect((await request).length).toBe(700_000);
  const response = received(client);
  served.end('response'.repeat(100_000));
  expect((await response).length).toBe(800_000);
});

test('the end of the server closes the connection of the client, after what the server has written', async () => {
  const [client, served] = await connected();
  const response = received(client);
  served.end('GOAWAY');
  served.destroySoon();
  expect(await response).toBe('GOAWAY');
});

test('a client that disappears closes the connection to the server', async () => {
  const [client, served] = await connected();
  served.resume().on('error', () => undefined);
  client.on('error', () => undefined).resetAndDestroy();
  await once(served, 'end');
});

test('a server that does not accept closes the connection of the client', async () => {
  const other = await Relay.open({}, { path: join(folder, 'nobody.sock') });
  const client = connect({ host: '127.0.0.1', port: other.port });
  expect(await received(client)).toBe('');
  await other.close();
});

test('closing the relay ends its open connections', async () => {
  const [client, served] = await connected();
  served.resume().on('error', () => undefined);
  client.resume().on('error', () => undefined);
  await Promise.all([relay.close(), once(client, 'end')]);
  relay = await Relay.open({}, { path });
});
