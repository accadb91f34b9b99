import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Server, Socket } from 'node:net';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import { ReusedReads, SocketTransport } from '../../../src/server/proxy/transport.ts';
import { frame, headers, openProxy, PING, request } from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

describe('Transport', () => {
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

  test('an accepted socket reads into the same memory again once its bytes have been handled', async () => {
    const accepted = once(server, 'connection');
    const other = createConnection(join(folder, 's.sock'));
    const [plain] = (await accepted) as [Socket];
    const reads = new ReusedReads();
    const adopted = reads.adopt(plain);
    const seen: Buffer[] = [];
    const texts: string[] = [];
    const events = new EventEmitter();
    const data = (chunk: Buffer): boolean => {
      seen.push(chunk);
      texts.push(chunk.toString());
      events.emit('data');
      return texts.at(-1) !== 'held';
    };
    const closed = vi.fn();
    const reading = new SocketTransport(adopted, { data, drained, closed }, reads);
    for (const text of ['first', 'held', 'next', 'last']) {
      const handled = once(events, 'data');
      other.write(text);
      await handled;
    }
    expect(texts).toEqual(['first', 'held', 'next', 'last']);
    const memory = seen.map(({ buffer }) => buffer);
    expect(memory.map((one) => memory.indexOf(one))).toEqual([0, 0, 2, 2]);
    expect(seen[1]?.toString()).toBe('held');
    reading.write([Buffer.from('an'), Buffer.from('swer')], 6);
    expect(String(await once(other, 'data'))).toBe('answer');
    other.end();
    await vi.waitFor(() => expect(closed).toHaveBeenCalledWith(undefined), LONG_WAIT);
    adopted.destroy();
  });

  test('a socket that has read before it is adopted keeps what it has read', async () => {
    client.write('early');
    await vi.waitFor(() => expect(socket.bytesRead).toBe(5), LONG_WAIT);
    expect(new ReusedReads().adopt(socket)).toBe(socket);
    expect(socket.destroyed).toBe(false);
  });

  test('a socket whose end has been read before it is adopted stays as it is', async () => {
    const accepted = once(server, 'connection');
    const other = createConnection({ path: join(folder, 's.sock'), allowHalfOpen: true }).resume();
    const [plain] = (await accepted) as [Socket];
    plain.resume();
    other.end();
    await once(plain, 'end');
    expect(new ReusedReads().adopt(plain)).toBe(plain);
    other.destroy();
  });

  test('small writes to a client that does not read take little more memory than their bytes', async () => {
    // The kernel accepts as much as it can, so that the rest is queued in the transport.
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
    // Repeats the writes: memory of earlier bytes may be reused.
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
});

describe('a slow reader', () => {
  test('a slow reader pauses reading from the other sides, so that bytes wait in their sockets and not in the proxy', () => {
    const proxy = openProxy();
    proxy.client.send(headers(1, request('/handle/A')));
    proxy.client.backlog = 70_000;
    proxy.backend.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect([proxy.backend.paused, proxy.locals[0]!.paused, proxy.client.paused]).toEqual([true, true, false]);
    proxy.client.backlog = 2_000_000;
    proxy.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(proxy.client.paused).toBe(true);
    proxy.client.backlog = 0;
    proxy.client.events.drained();
    expect([proxy.backend.paused, proxy.locals[0]!.paused, proxy.client.paused]).toEqual([false, false, false]);
    proxy.backend.backlog = 70_000;
    proxy.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect([proxy.client.paused, proxy.backend.paused]).toEqual([true, false]);
    proxy.backend.backlog = 0;
    proxy.backend.events.drained();
    expect(proxy.client.paused).toBe(false);
  });

  test('a slow reader is paused with fewer waiting bytes while other slow readers have used up the shared memory', () => {
    const shared = new SharedBudget({ ...SHARED_LIMITS, held: { reserved: 65_536, all: 1_000_000 } });
    const proxies = [openProxy({ shared }), openProxy({ shared })];
    for (const { client } of proxies) {
      client.backlog = 900_000;
      client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    }
    expect(proxies.map(({ client }) => client.paused)).toEqual([false, true]);
    proxies[0]!.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(proxies[0]!.client.paused).toBe(true);
    for (const { client } of proxies) {
      client.backlog = 0;
      client.events.drained();
    }
    expect(proxies.map(({ client }) => client.paused)).toEqual([false, false]);
  });
});
