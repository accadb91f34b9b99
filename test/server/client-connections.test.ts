import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, test, vi } from 'vitest';
import { noCounters } from '../../src/core/observe/counters.ts';
import { type Log, type LogFields, noLog } from '../../src/core/observe/interfaces.ts';
import { backendAt, CONNECTION_LIMIT, createClientConnections } from '../../src/server/client-connections.ts';
import {
  type AmendedCall,
  type Amendment,
  interceptionOf,
  type MessageAmendment,
  noInterceptors,
} from '../../src/server/handlers/interceptors.ts';

/** A connection whose streams end when a test calls {@link endStreams}. */
class FakeConnection {
  readonly events: string[] = [];
  /** Bytes that the client has not read. */
  unsent = 0;
  #close: () => void = () => undefined;
  readonly closed = new Promise<void>((resolve) => (this.#close = resolve));
  constructor(
    public activeStreams: number,
    readonly lastUsed = 0,
    readonly calls = 0,
  ) {}

  get endingStreams(): number {
    return this.activeStreams;
  }
  shutdown(): void {
    this.events.push('shutdown');
    if (this.activeStreams + this.unsent === 0) this.#close();
  }
  endStreams(): void {
    this.activeStreams = 0;
    this.#close();
  }
  end(): void {
    this.events.push('end');
    this.#close();
  }
  destroy(): void {
    this.events.push('destroy');
    this.endStreams();
  }
}

function open(activeStreams: number[], peers: number[] = []) {
  const connections: FakeConnection[] = [];
  const refused: Socket[] = [];
  const door = createClientConnections({
    limit: CONNECTION_LIMIT,
    serve: () => {
      const connection = new FakeConnection(activeStreams[connections.length] ?? 0);
      connections.push(connection);
      return connection;
    },
    refuse: (client) => refused.push(client),
    peerOf: () => peers.shift(),
    tooMany: () => undefined,
    local: { handle: () => undefined, connect: () => new PassThrough() },
    interception: interceptionOf(noInterceptors, { log: noLog, counters: noCounters, debug: false }),
  });
  activeStreams.forEach(() => door.accept(new Socket()));
  return { door, connections, refused };
}

describe('L2: connections above the limit', () => {
  test('a connection above the limit ends the least recently used one without running calls', () => {
    const used = Array.from({ length: CONNECTION_LIMIT }, (_, at) => (at % 2 === 0 ? 1 : 0));
    const { door, connections, refused } = open(used);
    door.accept(new Socket());
    expect(connections.flatMap(({ events }, at) => events.map((event) => [at, event]))).toEqual([[1, 'end']]);
    expect([door.connections, refused.length]).toEqual([CONNECTION_LIMIT, 0]);
  });

  test('a connection above the limit is refused if all other connections have running calls', () => {
    const { door, connections, refused } = open(Array.from({ length: CONNECTION_LIMIT }, () => 1));
    door.accept(new Socket());
    expect([door.connections, connections.length, refused.length]).toEqual([CONNECTION_LIMIT, CONNECTION_LIMIT, 1]);
  });
});

test('peers returns the known processes of open connections', async () => {
  const { door, connections } = open([1, 1, 1, 1], [7, 8, 8]);
  expect(door.peers()).toEqual(new Set([7, 8]));
  for (const at of [0, 1]) connections[at]?.endStreams();
  await new Promise(setImmediate);
  expect(door.peers()).toEqual(new Set([8]));
});

describe('shutdown', () => {
  test('shutdown waits for running streams', async () => {
    const { door, connections } = open([0, 2]);
    let isDone = false;
    const done = door.shutdown(60_000).finally(() => (isDone = true));
    await new Promise(setImmediate);
    expect([isDone, door.connections]).toEqual([false, 1]);
    connections[1]?.endStreams();
    expect(await done).toBe(0);
    expect(connections.map(({ events }) => events)).toEqual([['shutdown'], ['shutdown']]);
    expect(door.connections).toBe(0);
  });

  test('shutdown destroys the remaining connections after the timeout, and returns the number of their streams', async () => {
    const { door, connections } = open([0, 2, 3]);
    expect(await door.shutdown(10)).toBe(5);
    expect(connections.map(({ events }) => events.join())).toEqual([
      'shutdown',
      'shutdown,destroy',
      'shutdown,destroy',
    ]);
  });

  test('shutdown counts the answers that a client has not read as one call', async () => {
    const { door, connections } = open([0, 2]);
    for (const connection of connections) connection.unsent = 70_000;
    expect(await door.shutdown(10)).toBe(3);
  });

  test.each([
    ['without running calls and unread answers is cut off first', 0, 0, 0],
    ['with an unread answer has longer', 0, 70_000, 1],
    ['with a running call has the whole time', 1, 0, 1],
  ])('with patience, a client that does not close, %s', async (what, calls, unsent, cut) => {
    vi.useFakeTimers();
    try {
      const { door, connections } = open([0, 0]);
      Object.assign(connections[1]!, { activeStreams: calls, unsent, shutdown: () => undefined });
      let counted: number | undefined;
      void door.shutdown(10_000, { idle: 200, unread: 1000 }).then((count) => (counted = count));
      const end = what.includes('first') ? 200 : what.includes('longer') ? 1000 : 10_000;
      await vi.advanceTimersByTimeAsync(end - 1);
      expect(connections[1]?.events).toEqual([]);
      await vi.advanceTimersByTimeAsync(1);
      expect([connections[1]?.events, counted]).toEqual([['destroy'], cut]);
    } finally {
      vi.useRealTimers();
    }
  });

  test('shutdown ends at once if there are no connections', async () => {
    expect(await open([]).door.shutdown(60_000)).toBe(0);
  });

  test('shutdown also applies to connections that are accepted after its start', async () => {
    const { door, connections } = open([1]);
    const done = door.shutdown(60_000);
    door.accept(new Socket());
    expect(connections[1]?.events).toEqual(['shutdown']);
    connections[0]?.endStreams();
    await done;
    expect(door.connections).toBe(0);
  });
});

test('a connection to the backend reports when it is established', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'door-'));
  const server = createServer((socket) => socket.destroy());
  server.listen(join(folder, 'b.sock'));
  await once(server, 'listening');
  let reached = 0;
  const connect = backendAt(join(folder, 'b.sock'), () => (reached += 1));
  const socket = connect({ buffer: new Uint8Array(16), callback: () => true });
  await once(socket, 'connect');
  expect(reached).toBe(1);
  socket.destroy();
  server.close();
  rmSync(folder, { recursive: true });
});

describe('interceptors', () => {
  const handler = (): Promise<Buffer> => Promise.resolve(Buffer.alloc(0));
  const lines: [string, LogFields][] = [];
  const log: Log = {
    ...noLog,
    debug: (fields) => void lines.push(['debug', fields]),
    info: (fields) => void lines.push(['info', fields]),
  };
  const reversed: Amendment = ({ response }, trace) => {
    trace.fields.pod = 'a pod';
    return Promise.resolve(Uint8Array.from(response).reverse());
  };
  const interception = interceptionOf(
    {
      handlers: new Map([['/a/Handled', handler]]),
      amendments: new Map<string, AmendedCall>([
        ['/a/Amended', { amendment: reversed, logLevel: 'info' }],
        ['/a/Often', { amendment: reversed, logLevel: 'debug' }],
      ]),
      streams: new Map<string, MessageAmendment>([['/a/Stream', (message) => Uint8Array.from(message).reverse()]]),
      delays: new Map([['/a/Stats', ({ timeoutMs }) => (timeoutMs < 10 ? undefined : Promise.resolve())]]),
    },
    { log, counters: noCounters, debug: true },
  );

  test('interceptors route calls by path, and all other paths are forwarded', () => {
    expect(
      ['/a/Handled', '/a/Amended', '/a/Stream', '/a/handled', '/a/Handled/', '', 'constructor'].map((path) =>
        interception.route(path),
      ),
    ).toEqual(['handle', 'amend', 'amend-each', 'pass', 'pass', 'pass', 'pass']);
    expect(interceptionOf(noInterceptors, { log: noLog, counters: noCounters, debug: false }).route('/a/Handled')).toBe(
      'pass',
    );
  });

  test('interceptors delay calls by path, and only if the handler delays them', async () => {
    const call = { request: new Uint8Array(), timeoutMs: 10, onEnd: () => undefined };
    expect(['/a/Stats', '/a/Amended'].map((path) => interception.isDelayed?.(path))).toEqual([true, false]);
    await expect(interception.delay?.({ path: '/a/Stats', ...call })).resolves.toBeUndefined();
    expect(interception.delay?.({ path: '/a/Stats', ...call, timeoutMs: 9 })).toBeUndefined();
    expect(interception.delay?.({ path: '/a/Amended', ...call })).toBeUndefined();
    expect(lines).toEqual([]);
  });

  test('interceptors amend each message of a stream by path, and log no call', () => {
    expect(interception.amendMessage('/a/Stream', Uint8Array.of(1, 2))).toEqual(Uint8Array.of(2, 1));
    expect(interception.amendMessage('/a/Other', Uint8Array.of(1, 2))).toBeUndefined();
    expect(lines).toEqual([]);
  });

  test('interceptors amend calls by path, and log each one at its level', async () => {
    const exchange = { request: new Uint8Array(), response: Uint8Array.of(1, 2), backendMs: 1.5 };
    expect(await interception.amend({ path: '/a/Amended', ...exchange })).toEqual(Uint8Array.of(2, 1));
    expect(await interception.amend({ path: '/a/Other', ...exchange })).toBeUndefined();
    await interception.amend({ path: '/a/Often', ...exchange });
    const line = { pod: 'a pod', code: 'OK', backendMs: 1.5, shimMs: expect.any(Number) as number };
    expect(lines).toEqual([
      ['info', { ...line, method: '/a/Amended' }],
      ['debug', { ...line, method: '/a/Often' }],
    ]);
  });
});
