import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Http2Server } from 'node:http2';
import { createServer } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ServerUnaryCall, sendUnaryData } from '@grpc/grpc-js';
import { Metadata as JsMetadata, Server, ServerCredentials, status } from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { isServiceError, Metadata } from '../../../src/core/grpc.ts';
import {
  Channel,
  Deadlines,
  MAX_CALLS,
  MAX_LEAVING,
  MAX_REQUEST_BYTES,
  NEXT_ATTEMPT_MS,
} from '../../../src/runtime/channel/channel.ts';
import type { RawPeer } from '../../support/http2/raw-server.ts';
import { RawServer } from '../../support/http2/raw-server.ts';
import {
  data,
  GOAWAY,
  goaway,
  goawayOf,
  HEADERS,
  headers,
  message,
  OK,
  RESPONSE,
  rst,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const LIMIT = 16_777_216;
let channel: Channel;

describe('Channel', () => {
  const PATH = '/s/Method';
  const REFUSED_STREAM = 7;

  let server: RawServer;
  let connections: number;

  beforeEach(() => {
    server = new RawServer();
    connections = 0;
    channel = new Channel(server.path, LIMIT, () => (connections += 1));
  });

  afterEach(async () => {
    vi.useRealTimers();
    channel.close();
    await server.remove();
  });

  /** Stops the clock and the timers of the channel. Sockets continue to work, and time passes only by {@link pass}. */
  const stopTime = (): void => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const pass = (ms: number): void => void vi.advanceTimersByTime(ms);
  /** Resolves when the actions of this turn of the event loop have been carried out. */
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  const serve = (each: (peer: RawPeer) => void = (peer) => peer.greet()): Promise<void> => server.listen(each);

  interface Options {
    readonly size?: number;
    readonly ms?: number;
    readonly signal?: AbortSignal;
  }

  function call({ size = 0, ms = 60_000, signal }: Options = {}): Promise<Buffer> {
    const deadline = performance.now() + ms;
    const running = channel.call({ path: PATH, message: Buffer.alloc(size), metadata: undefined, deadline, signal });
    running.catch(() => undefined);
    return running;
  }

  async function failureOf(running: Promise<Buffer>): Promise<[number, string]> {
    const error = await running.catch((reason: unknown) => reason);
    if (!isServiceError(error)) throw new Error('the call has not failed', { cause: error });
    return [error.code, error.details];
  }

  const respond = (peer: RawPeer, id: number, text = 'answer'): void =>
    peer.send(headers(id, RESPONSE), data(id, message(Buffer.from(text))), headers(id, OK, true));
  const textOf = async (running: Promise<Buffer>): Promise<string> => (await running).toString();
  const lost = [status.UNAVAILABLE, 'error reading from server: EOF'];
  const unconnected = [
    status.UNAVAILABLE,
    expect.stringMatching(/^No connection established\. Last error: connect (ENOENT|ECONNREFUSED) \//),
  ];

  describe('a channel without a server', () => {
    test('without a server, the first call fails at once with the reason, and a later call after the next attempts', async () => {
      stopTime();
      expect(await failureOf(call())).toEqual(unconnected);
      const later = call();
      pass(NEXT_ATTEMPT_MS - 1);
      await turn();
      expect(channel.calls).toBe(1);
      pass(1);
      expect(await failureOf(later)).toEqual(unconnected);
      expect(channel.calls).toBe(0);
    });

    test('a call that waits for the next attempt ends when cancelled, at its deadline, and when the shim stops', async () => {
      stopTime();
      await failureOf(call());
      const abort = new AbortController();
      const [cancelled, late, stopped] = [call({ signal: abort.signal }), call({ ms: 30 }), call()];
      abort.abort();
      expect(await failureOf(cancelled)).toEqual([status.CANCELLED, 'Cancelled on client']);
      pass(30);
      expect((await failureOf(late))[0]).toBe(status.DEADLINE_EXCEEDED);
      channel.close();
      expect(await failureOf(stopped)).toEqual([status.UNAVAILABLE, 'the shim stops']);
      expect(await failureOf(call())).toEqual([status.UNAVAILABLE, 'the shim stops']);
      expect(channel.calls).toBe(0);
    });

    test('the channel waits 100 ms before it reconnects to a server that sends SETTINGS and closes', async () => {
      stopTime();
      await serve((peer) => {
        peer.greet();
        peer.socket.end();
      });
      channel.keepConnected();
      await (await server.peer()).closed();
      pass(99);
      await turn();
      expect(server.peers).toHaveLength(1);
      pass(1);
      await server.peer(1);
    });

    test('a waiting call is sent to a server that has started in the meantime', async () => {
      stopTime();
      await failureOf(call());
      const running = call();
      await serve();
      pass(NEXT_ATTEMPT_MS / 2);
      const peer = await server.peer();
      await peer.requests();
      respond(peer, 1);
      expect(await textOf(running)).toBe('answer');
    });

    test('a call that waits for a free stream of a server ends at its deadline', async () => {
      stopTime();
      await failureOf(call());
      const [first, second] = [call(), call()];
      await serve((peer) => peer.greet([3, 1]));
      pass(NEXT_ATTEMPT_MS / 2);
      const peer = await server.peer();
      await peer.requests();
      const other = call({ ms: 2 * NEXT_ATTEMPT_MS });
      pass(2 * NEXT_ATTEMPT_MS - 1);
      await turn();
      expect(channel.calls).toBe(3);
      pass(1);
      expect((await failureOf(other))[0]).toBe(status.DEADLINE_EXCEEDED);
      respond(peer, 1, 'one');
      expect(await peer.requests(2)).toEqual([1, 3]);
      respond(peer, 3, 'two');
      expect(await Promise.all([first, second].map(textOf))).toEqual(['one', 'two']);
    });
  });

  describe('a server that goes away', () => {
    test('a server that goes away ends its calls, and the channel reconnects without a new call', async () => {
      await serve();
      channel.keepConnected();
      await expect.poll(() => [channel.isConnected, connections], LONG_WAIT).toEqual([true, 1]);
      const running = call();
      await (await server.peer()).requests();
      await server.stop();
      expect(await failureOf(running)).toEqual(lost);
      await expect.poll(() => channel.isConnected, LONG_WAIT).toBe(false);
      await serve();
      await expect.poll(() => [channel.isConnected, connections], LONG_WAIT).toEqual([true, 2]);
    });

    test('a channel without keepConnected connects again for the next call after the server closes the connection', async () => {
      await serve();
      const running = call();
      const peer = await server.peer();
      await peer.requests();
      respond(peer, 1);
      await running;
      peer.socket.destroy();
      await expect.poll(() => channel.isConnected, LONG_WAIT).toBe(false);
      await turn();
      const next = call();
      const second = await server.peer(1);
      await second.requests();
      respond(second, 1);
      expect(await textOf(next)).toBe('answer');
      expect(server.peers).toHaveLength(2);
    });

    test('connection attempts are at least 100 ms apart, even if the server accepts and closes each connection', async () => {
      const times: number[] = [];
      await serve((peer) => {
        times.push(performance.now());
        peer.greet();
        if (times.length < 4) peer.socket.end();
      });
      const begin = performance.now();
      channel.keepConnected();
      await expect.poll(() => times.length, LONG_WAIT).toBe(4);
      // A server may notice a connection late, but not before it was begun.
      expect((times[3] ?? 0) - begin).toBeGreaterThan(295);
    });

    test('calls to a server that hangs end at their deadlines, and the channel does not count as connected', async () => {
      await serve(() => undefined);
      channel.keepConnected();
      await server.peer();
      const running = [call({ ms: 50 }), call({ ms: 60, size: 1_000_000 })];
      for (const one of running) expect((await failureOf(one))[0]).toBe(status.DEADLINE_EXCEEDED);
      expect([channel.isConnected, channel.calls]).toEqual([false, 0]);
    });

    test('a server that stops reading gets only calls that fit into its socket, and the other calls wait in the shim', async () => {
      await serve((peer) => {
        peer.greet([4, 2_147_483_647]);
        peer.send(windowUpdate(0, 1 << 30));
        peer.socket.pause();
      });
      channel.keepConnected();
      await expect.poll(() => channel.isConnected, LONG_WAIT).toBe(true);
      stopTime();
      const sizes = 20_000;
      const calls = Array.from({ length: 100 }, () => call({ size: sizes, ms: 300 }));
      await turn();
      pass(300);
      for (const one of calls) expect((await failureOf(one))[0]).toBe(status.DEADLINE_EXCEEDED);
      expect(channel.calls).toBe(0);
      const [peer] = server.peers;
      peer?.socket.resume();
      // All bytes that were passed to the socket arrive. Bytes of the other calls were dropped.
      await expect.poll(() => peer?.frames.filter(({ type }) => type === HEADERS).length, LONG_WAIT).toBeGreaterThan(5);
      const next = call();
      const isLast = (): boolean =>
        peer?.frames.some(({ payload }) => payload.equals(message(Buffer.alloc(0)))) === true;
      await expect.poll(isLast, LONG_WAIT).toBe(true);
      const ids = peer?.frames.filter(({ type }) => type === HEADERS).map(({ id }) => id) ?? [];
      expect(ids.length).toBeLessThan(60);
      if (peer !== undefined) respond(peer, ids.at(-1) ?? 0);
      expect(await textOf(next)).toBe('answer');
    });
  });

  describe('a call that the server has not processed', () => {
    test('a call after the last stream id of GOAWAY is sent again on the next connection, and earlier calls continue', async () => {
      await serve();
      const calls = [call(), call(), call()];
      const first = await server.peer();
      await first.requests(3);
      first.send(goaway(3, 0));
      const second = await server.peer(1);
      expect(await second.requests()).toEqual([1]);
      respond(second, 1, 'again');
      respond(first, 1, 'one');
      respond(first, 3, 'two');
      expect(await Promise.all(calls.map(textOf))).toEqual(['one', 'two', 'again']);
      await first.closed();
      expect([channel.isConnected, second.isClosed, server.peers.length]).toEqual([true, false, 2]);
    });

    test('a call whose stream the server refuses is sent again once', async () => {
      await serve();
      const [once, twice] = [call(), call()];
      const peer = await server.peer();
      await peer.requests(2);
      peer.send(rst(1, REFUSED_STREAM), rst(3, REFUSED_STREAM));
      expect(await peer.requests(4)).toEqual([1, 3, 5, 7]);
      respond(peer, 5);
      peer.send(rst(7, REFUSED_STREAM));
      expect(await textOf(once)).toBe('answer');
      expect(await failureOf(twice)).toEqual([status.UNAVAILABLE, 'Stream refused by server']);
    });

    test('a call that the server may have processed is not sent again', async () => {
      await serve();
      const running = call();
      const peer = await server.peer();
      await peer.requests();
      peer.send(goaway(1, 0));
      peer.socket.end();
      expect(await failureOf(running)).toEqual(lost);
      expect(server.peers).toHaveLength(1);
    });

    test('a call is sent again after the second GOAWAY of a graceful shutdown', async () => {
      await serve();
      const running = call();
      const first = await server.peer();
      await first.requests();
      first.send(goaway(2_147_483_647, 0));
      await expect.poll(() => channel.isConnected, LONG_WAIT).toBe(false);
      const next = call();
      const second = await server.peer(1);
      await second.requests();
      first.send(goaway(0, 0));
      await second.requests(2);
      respond(second, 1);
      respond(second, 3);
      await Promise.all([running, next]);
      await first.closed();
    });

    test('a call fails with UNAVAILABLE if the server sends GOAWAY at once on each connection', async () => {
      await serve((peer) => {
        peer.greet();
        peer.send(goaway(0, 11));
      });
      expect(await failureOf(call())).toEqual([status.UNAVAILABLE, 'Stream refused by server']);
    });
  });

  describe('limits of a channel', () => {
    test('calls beyond the stream limit of the server wait in order', async () => {
      await serve((peer) => peer.greet([3, 2]));
      const calls = Array.from({ length: 5 }, () => call());
      const peer = await server.peer();
      expect(await peer.requests(2)).toEqual([1, 3]);
      respond(peer, 3, 'b');
      expect(await peer.requests(3)).toEqual([1, 3, 5]);
      peer.send(settings([3, 10]));
      expect(await peer.requests(5)).toEqual([1, 3, 5, 7, 9]);
      for (const [id, text] of [
        [1, 'a'],
        [5, 'c'],
        [7, 'd'],
        [9, 'e'],
      ] as const)
        respond(peer, id, text);
      expect(await Promise.all(calls.map(textOf))).toEqual(['a', 'b', 'c', 'd', 'e']);
    });

    test('calls beyond the limit of concurrent calls or of request bytes are rejected with UNAVAILABLE', async () => {
      stopTime();
      await serve((peer) => peer.greet([3, 0]));
      const refused = [status.UNAVAILABLE, 'too many calls to the backend at the same time'];
      const large = [call({ size: LIMIT, ms: 200 }), call({ size: MAX_REQUEST_BYTES - LIMIT, ms: 200 })];
      expect(await failureOf(call({ size: 1 }))).toEqual(refused);
      pass(200);
      for (const one of large) expect((await failureOf(one))[0]).toBe(status.DEADLINE_EXCEEDED);
      const many = Array.from({ length: MAX_CALLS }, () => call({ ms: 500 }));
      expect(await failureOf(call())).toEqual(refused);
      pass(500);
      expect(new Set((await Promise.all(many.map(failureOf))).map(([code]) => code))).toEqual(new Set([4]));
      expect(channel.calls).toBe(0);
    });

    test('a request above the maximum size is rejected with RESOURCE_EXHAUSTED', async () => {
      expect(await failureOf(call({ size: LIMIT + 1 }))).toEqual([
        status.RESOURCE_EXHAUSTED,
        'Attempted to send message with a size larger than 16777216',
      ]);
    });

    test('with too many connections after GOAWAY, the oldest is closed and its calls fail', async () => {
      await serve();
      const calls: Promise<Buffer>[] = [];
      for (let index = 0; index <= MAX_LEAVING; index += 1) {
        calls.push(call());
        const peer = await server.peer(index);
        await peer.requests();
        peer.send(goaway(1, 0));
        await expect.poll(() => channel.isConnected, LONG_WAIT).toBe(false);
      }
      expect(await failureOf(calls[0]!)).toEqual(lost);
      await (await server.peer(0)).closed();
      expect(channel.calls).toBe(MAX_LEAVING);
    });
  });

  describe('a closed channel', () => {
    test('a closed channel ends calls that wait and lets running calls continue', async () => {
      await serve((peer) => peer.greet([3, 1]));
      const [running, waiting] = [call(), call()];
      const peer = await server.peer();
      await peer.requests();
      channel.close();
      expect(await failureOf(waiting)).toEqual([status.UNAVAILABLE, 'the shim stops']);
      expect(channel.isConnected).toBe(false);
      respond(peer, 1);
      expect(await textOf(running)).toBe('answer');
      await peer.closed();
    });

    test('a closed channel does not reconnect', async () => {
      await serve();
      channel.keepConnected();
      await expect.poll(() => channel.isConnected, LONG_WAIT).toBe(true);
      channel.close();
      await (await server.peer()).closed();
      expect(server.peers).toHaveLength(1);
    });
  });

  test('an exception in the shim closes the connection where it occurs, but does not end the process', async () => {
    let failures = 1;
    const fragile = new Channel(server.path, LIMIT, () => {
      if (failures-- > 0) throw new Error('broken');
    });
    await serve();
    const running = fragile.call({
      path: PATH,
      message: Buffer.alloc(0),
      metadata: undefined,
      deadline: Infinity,
      signal: undefined,
    });
    const [first, second] = [await server.peer(0), await server.peer(1)];
    const [id = 0] = await second.requests();
    respond(second, id);
    expect(await textOf(running)).toBe('answer');
    expect(goawayOf(await first.seen(({ type }) => type === GOAWAY))).toEqual({ last: 0, code: 2 });
    fragile.close();
  });
});

describe('deadlines of calls', () => {
  interface Item {
    readonly name: string;
    due: number;
  }

  let expired: string[];
  let deadlines: Deadlines<Item>;
  const item = (name: string, ms: number): Item => ({ name, due: performance.now() + ms });

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
    expired = [];
    deadlines = new Deadlines(({ name }) => expired.push(name));
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  test('items expire when they are due, in any order of additions, with one timer', () => {
    for (const [name, ms] of [
      ['c', 300],
      ['a', 100],
      ['b', 200],
      ['never', Infinity],
    ] as const)
      deadlines.add(item(name, ms));
    expect(vi.getTimerCount()).toBe(1);
    vi.advanceTimersByTime(99);
    expect(expired).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(expired).toEqual(['a']);
    expect(vi.getTimerCount()).toBe(1);
    vi.advanceTimersByTime(200);
    expect(expired).toEqual(['a', 'b', 'c']);
    expect([deadlines.size, vi.getTimerCount()]).toEqual([1, 0]);
  });

  test('a removed item does not expire', () => {
    const [first, second] = [item('first', 100), item('second', 200)];
    deadlines.add(first);
    deadlines.add(second);
    deadlines.delete(first);
    vi.advanceTimersByTime(1000);
    expect(expired).toEqual(['second']);
  });

  test('an item that is due already expires in the next turn, not at once', () => {
    deadlines.add(item('late', -5));
    expect(expired).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(expired).toEqual(['late']);
  });

  test('an item can become due earlier, and an item added while others expire also expires', () => {
    const moved = item('moved', 500);
    deadlines.add(moved);
    moved.due = performance.now() + 10;
    deadlines.add(moved);
    vi.advanceTimersByTime(10);
    expect(expired).toEqual(['moved']);
    const chained = new Deadlines<Item>(({ name }) => {
      expired.push(name);
      if (name === 'one') chained.add(item('two', 50));
    });
    chained.add(item('one', 20));
    vi.advanceTimersByTime(70);
    expect(expired).toEqual(['moved', 'one', 'two']);
  });

  test('a change of the system time expires nothing, and an item beyond the longest timer does not expire early', () => {
    deadlines.add(item('hour', 3_600_000));
    deadlines.add(item('months', 2 ** 32));
    vi.setSystemTime(Date.now() + 86_400_000);
    vi.advanceTimersByTime(3_599_999);
    expect(expired).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(expired).toEqual(['hour']);
    vi.advanceTimersByTime(2 ** 31);
    expect(expired).toEqual(['hour']);
    vi.advanceTimersByTime(2 ** 32);
    expect(expired).toEqual(['hour', 'months']);
  });

  test('trim clears the timer when no items are left', () => {
    const only = item('only', 100);
    deadlines.add(only);
    deadlines.trim();
    expect(vi.getTimerCount()).toBe(1);
    deadlines.delete(only);
    deadlines.trim();
    expect(vi.getTimerCount()).toBe(0);
    deadlines.add(item('again', 10));
    vi.advanceTimersByTime(10);
    expect(expired).toEqual(['again']);
  });
});

describe('gRPC servers of other libraries', () => {
  const folder = mkdtempSync(join(tmpdir(), 'channel-'));
  const raw = (bytes: Buffer): Buffer => bytes;

  interface Request {
    readonly path: string;
    readonly message?: Buffer;
    readonly metadata?: Metadata;
    readonly deadline?: number;
    readonly signal?: AbortSignal;
  }

  const call = ({
    path,
    message: bytes = Buffer.alloc(0),
    metadata,
    deadline = Infinity,
    signal,
  }: Request): Promise<Buffer> => channel.call({ path, message: bytes, metadata, deadline, signal });

  afterAll(() => rmSync(folder, { recursive: true }));

  describe('a server of grpc-js', () => {
    const server = new Server({ 'grpc.max_receive_message_length': LIMIT, 'grpc.max_send_message_length': LIMIT + 5 });
    const seen: ServerUnaryCall<Buffer, Buffer>[] = [];
    const handlers: Record<string, (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>) => void> = {
      '/t/Echo': ({ request }, respond) => respond(null, request),
      '/t/Hang': (hanging) => seen.push(hanging),
      '/t/Long': (_, respond) => respond(null, Buffer.alloc(LIMIT + 1)),
      '/t/Fail': ({ metadata }, respond) => {
        const trailers = new JsMetadata();
        trailers.set('x-seen', String(metadata.get('x-id')[0]));
        trailers.set('grpc-status-details-bin', Buffer.of(1, 2, 3));
        respond({ code: status.FAILED_PRECONDITION, details: 'pod “web”: 100 % full', metadata: trailers });
      },
    };

    beforeAll(async () => {
      for (const [path, handler] of Object.entries(handlers)) server.register(path, handler, raw, raw, 'unary');
      const address = `unix:${join(folder, 'grpc.sock')}`;
      await new Promise((resolve) => server.bindAsync(address, ServerCredentials.createInsecure(), resolve));
      channel = new Channel(join(folder, 'grpc.sock'), LIMIT, () => undefined);
    });
    afterAll(() => {
      channel.close();
      server.forceShutdown();
    });

    test.each([0, 1, 16_379, 16_384, 65_531, 1_000_000, LIMIT])('a grpc-js server echoes %d bytes', async (size) => {
      const bytes = Buffer.alloc(size, 'The quick brown fox');
      expect((await call({ path: '/t/Echo', message: bytes })).equals(bytes)).toBe(true);
    });

    test('a grpc-js server echoes 300 concurrent messages', async () => {
      const sent = Array.from({ length: 300 }, (_, index) => Buffer.alloc(index * 37, `${index}`));
      const received = await Promise.all(sent.map((bytes) => call({ path: '/t/Echo', message: bytes })));
      expect(received.every((bytes, index) => sent[index]?.equals(bytes))).toBe(true);
    });

    test('a grpc-js server receives metadata, and its error details and trailers arrive', async () => {
      const metadata = new Metadata();
      metadata.add('x-id', '7');
      const error = await call({ path: '/t/Fail', metadata }).catch((reason: unknown) => reason);
      expect(isServiceError(error) && [error.code, error.details]).toEqual([9, 'pod “web”: 100 % full']);
      expect(isServiceError(error) && error.metadata.get('x-seen')).toEqual(['7']);
      expect(isServiceError(error) && error.metadata.get('grpc-status-details-bin')).toEqual([Buffer.of(1, 2, 3)]);
    });

    test('a call of a method that a grpc-js server lacks fails with UNIMPLEMENTED', async () => {
      await expect(call({ path: '/t/Missing' })).rejects.toMatchObject({ code: status.UNIMPLEMENTED });
    });

    test('a grpc-js server receives the deadline and the cancellation of a call', async () => {
      const abort = new AbortController();
      const deadline = performance.now() + 3_600_000;
      const running = call({ path: '/t/Hang', deadline, signal: abort.signal });
      running.catch(() => undefined);
      await expect.poll(() => seen.length, LONG_WAIT).toBe(1);
      const left = Number(seen[0]?.getDeadline()) - Date.now();
      expect(left).toBeGreaterThan(3_480_000);
      expect(left).toBeLessThan(3_720_000);
      const cancelled = once(seen[0]!, 'cancelled');
      abort.abort();
      await expect(running).rejects.toMatchObject({ code: status.CANCELLED });
      await cancelled;
    });

    test('a message above the maximum size from a grpc-js server fails its own call only', async () => {
      await expect(call({ path: '/t/Long' })).rejects.toMatchObject({
        code: status.RESOURCE_EXHAUSTED,
        details: `Received message larger than max (${LIMIT + 1} vs ${LIMIT})`,
      });
      expect(await call({ path: '/t/Echo', message: Buffer.of(1) })).toEqual(Buffer.of(1));
    });
  });

  describe('a server of node:http2', () => {
    let server: Http2Server;

    beforeAll(async () => {
      server = createServer({ settings: { initialWindowSize: 1000, maxConcurrentStreams: 3 } });
      server.on('stream', (stream) => {
        const chunks: Buffer[] = [];
        stream.on('data', (chunk: Buffer) => chunks.push(chunk));
        stream.on('end', () => {
          stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
          stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
          stream.end(Buffer.concat(chunks));
        });
      });
      server.listen(join(folder, 'http2.sock'));
      await once(server, 'listening');
      channel = new Channel(join(folder, 'http2.sock'), LIMIT, () => undefined);
    });
    afterAll(async () => {
      channel.close();
      await new Promise((resolve) => server.close(resolve));
    });

    test('a node:http2 server with small windows and few streams echoes 50 messages', async () => {
      const sent = Array.from({ length: 50 }, (_, index) => Buffer.alloc(index * 701, `${index}`));
      const received = await Promise.all(sent.map((bytes) => call({ path: '/t/Echo', message: bytes })));
      expect(received.every((bytes, index) => sent[index]?.equals(bytes))).toBe(true);
    });
  });
});
