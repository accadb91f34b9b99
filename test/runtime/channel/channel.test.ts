import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  MAX_CALLS,
  MAX_LEAVING,
  MAX_REQUEST_BYTES,
  NEXT_ATTEMPT_MS,
  Channel,
} from '../../../src/runtime/channel/channel.ts';
import { isServiceError } from '../../../src/core/grpc.ts';
import { type RawPeer, RawServer } from '../../support/http2/raw-server.ts';
import {
  GOAWAY,
  HEADERS,
  OK,
  RESPONSE,
  data,
  goaway,
  goawayOf,
  headers,
  message,
  rst,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const PATH = '/s/Method';
const LIMIT = 16_777_216;
const REFUSED_STREAM = 7;

let server: RawServer;
let channel: Channel;
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

/** Stops the clock and the timers of the channel: sockets continue to work, and time passes only in {@link pass}. */
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
    // All bytes that were handed to the socket arrive. Those of the other calls were dropped.
    await expect.poll(() => peer?.frames.filter(({ type }) => type === HEADERS).length, LONG_WAIT).toBeGreaterThan(5);
    const next = call();
    const isLast = (): boolean => peer?.frames.some(({ payload }) => payload.equals(message(Buffer.alloc(0)))) === true;
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
