import { status } from '@grpc/grpc-js';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Channel } from '../../../src/runtime/channel/channel.ts';
import { LIMIT, PATH, ServedChannel, answer, failureOf } from '../../support/channel/served-channel.ts';
import { RawServer } from '../../support/http2/raw-server.ts';
import {
  ACK,
  DATA,
  END_STREAM,
  OK,
  PING,
  RESPONSE,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
  data,
  dataOf,
  frame,
  headers,
  message,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const subject = new ServedChannel();
const { call, started } = subject;

afterEach(() => void vi.useRealTimers());

describe('flow control', () => {
  test('a request larger than the windows of the server waits for them, in frames of at most 16 KiB', async () => {
    const request = Buffer.alloc(200_000, 'abc');
    const { running, peer, id } = await started({ request });
    const sent = (): number => dataOf(peer.frames, id).length;
    await expect.poll(sent, LONG_WAIT).toBe(65_535);
    peer.send(windowUpdate(0, 1_000_000));
    // The window of the stream is empty still.
    peer.send(settings([4, 100_000]));
    await expect.poll(sent, LONG_WAIT).toBe(100_000);
    peer.send(windowUpdate(id, 7));
    await expect.poll(sent, LONG_WAIT).toBe(100_007);
    peer.send(windowUpdate(id, 1_000_000));
    await peer.seen(({ flags, type }) => type === DATA && flags === END_STREAM);
    expect(dataOf(peer.frames, id)).toEqual(message(request));
    expect(Math.max(...peer.frames.filter(({ type }) => type === DATA).map(({ payload }) => payload.length))).toBe(
      16_384,
    );
    peer.send(answer(id));
    await running;
  });

  test('SETTINGS are acknowledged before DATA that relies on them', async () => {
    const { running, peer, id } = await started({ request: Buffer.alloc(100_000) });
    await expect.poll(() => dataOf(peer.frames, id).length, LONG_WAIT).toBe(65_535);
    peer.send(windowUpdate(0, 100_000));
    await new Promise(setImmediate);
    peer.send(settings([4, 200_000], [5, 65_536]));
    await peer.seen(({ flags, type }) => type === DATA && flags === END_STREAM);
    const isAck = ({ type, flags }: { type: number; flags: number }): boolean => type === SETTINGS && flags === ACK;
    expect(peer.frames.findLastIndex(isAck)).toBe(peer.frames.length - 2);
    peer.send(answer(id));
    await running;
  });

  test('a request is sent through a window of one byte, including the prefix of the message', async () => {
    const own = new Channel(subject.server.path, LIMIT, () => undefined);
    await subject.server.stop();
    const small = new RawServer();
    await small.listen((peer) => peer.greet([4, 1]));
    const tight = new Channel(small.path, LIMIT, () => undefined);
    const running = tight.call({
      ...{ path: PATH, message: Buffer.from('four'), metadata: undefined, deadline: Infinity, signal: undefined },
    });
    const peer = await small.peer();
    await peer.requests();
    for (let sent = 1; sent <= 8; sent += 1) {
      await expect.poll(() => dataOf(peer.frames, 1).length, LONG_WAIT).toBe(sent);
      peer.send(windowUpdate(1, 1));
    }
    await peer.seen(({ flags, type }) => type === DATA && flags === END_STREAM);
    expect(dataOf(peer.frames, 1)).toEqual(message(Buffer.from('four')));
    peer.send(answer(1));
    await running;
    tight.close();
    own.close();
    await small.remove();
  });

  test('a lowered window counts bytes already sent, and streams share the window of the connection', async () => {
    const { running, peer, id } = await started({ request: Buffer.alloc(60_000) });
    await expect.poll(() => dataOf(peer.frames, id).length, LONG_WAIT).toBe(60_005);
    const second = call({ request: Buffer.alloc(60_000) });
    await expect.poll(() => dataOf(peer.frames, 3).length, LONG_WAIT).toBe(5530);
    peer.send(settings([4, 1000]), windowUpdate(0, 100_000));
    await peer.seen(({ type, flags }) => type === SETTINGS && flags === ACK, 2);
    peer.send(windowUpdate(3, 4530), frame(PING, 0, 0, Buffer.alloc(8)));
    await peer.seen(({ type }) => type === PING);
    expect(dataOf(peer.frames, 3)).toHaveLength(5530);
    peer.send(windowUpdate(3, 60_005 - 5530));
    await expect.poll(() => dataOf(peer.frames, 3).length, LONG_WAIT).toBe(60_005);
    peer.send(answer(id), answer(3));
    await Promise.all([running, second]);
  });

  test('a large request delays new calls for one fill of the writer only, and they do not block it', async () => {
    const { running, peer, id } = await started();
    peer.send(settings([4, 2_147_483_647], [5, 16_777_215]), windowUpdate(0, 1 << 30), answer(id));
    await running;
    const calls = [call({ request: Buffer.alloc(LIMIT) }), ...Array.from({ length: 2000 }, () => call())];
    const ended = await peer.seen(({ type, flags }) => type === DATA && flags === END_STREAM, 2002);
    const order = ended.map(({ id: stream }) => stream);
    expect(order.indexOf(3)).toBeGreaterThan(100);
    // Small calls that have not been sent when the large one ends would have waited for it.
    expect(order.slice(1, 101)).toEqual(Array.from({ length: 100 }, (_, index) => 5 + 2 * index));
    const all = peer.frames.filter(({ type }) => type === DATA).map(({ id: stream }) => stream);
    expect(all.slice(all.indexOf(5), all.indexOf(4003))).toContain(3);
    for (const { id: stream } of ended.slice(1)) peer.send(answer(stream));
    await Promise.all(calls);
  });

  test('requests take turns for the window of the connection, although one of them could use it up', async () => {
    const { running, peer, id } = await started({ request: Buffer.alloc(200_000) });
    await expect.poll(() => dataOf(peer.frames, id).length, LONG_WAIT).toBe(65_535);
    const small = call();
    await peer.requests(2);
    peer.send(windowUpdate(id, 1_000_000));
    for (let sent = 0; sent < 2; sent += 1) peer.send(windowUpdate(0, 16_384));
    peer.send(frame(PING, 0, 0, Buffer.alloc(8)));
    await peer.seen(({ type }) => type === PING);
    expect(dataOf(peer.frames, 3)).toEqual(message(Buffer.from('ask')));
    peer.send(answer(3), windowUpdate(0, 1_000_000));
    expect((await small).toString()).toBe('answer');
    await peer.seen(({ flags, type, id: stream }) => type === DATA && stream === id && flags === END_STREAM);
    peer.send(answer(id));
    await running;
  });

  test('windows are opened again while a long response arrives, and not for a short one', async () => {
    const { running, peer, id } = await started();
    const body = Buffer.alloc(LIMIT, 'xyz');
    const bytes = message(body);
    peer.send(headers(id, RESPONSE));
    const window = { connection: 2_097_152, stream: MiB };
    let counted = 1;
    const updates = (): void => {
      const seen = peer.frames.filter(({ type }) => type === WINDOW_UPDATE);
      for (const { id: stream, payload } of seen.slice(counted))
        window[stream === 0 ? 'connection' : 'stream'] += payload.readUInt32BE(0);
      counted = seen.length;
    };
    for (let at = 0; at < bytes.length; ) {
      const length = Math.min(16_384, bytes.length - at, window.connection, window.stream);
      if (length > 0) peer.send(data(id, bytes.subarray(at, at + length)));
      at += length;
      window.connection -= length;
      window.stream -= length;
      if (length === 0) await new Promise(setImmediate);
      updates();
    }
    peer.send(headers(id, OK, true));
    expect((await running).equals(body)).toBe(true);
    const before = peer.frames.filter(({ type }) => type === WINDOW_UPDATE).length;
    const short = call();
    peer.send(answer(3));
    await short;
    expect(peer.frames.filter(({ type }) => type === WINDOW_UPDATE)).toHaveLength(before);
  });

  test('data that arrives for ended calls is returned to the window of the connection', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const { running, peer, id } = await started({ deadline: performance.now() + 20 });
    vi.advanceTimersByTime(20);
    vi.useRealTimers();
    expect((await failureOf(running))[0]).toBe(status.DEADLINE_EXCEEDED);
    await peer.seen(({ type }) => type === RST_STREAM);
    peer.send(headers(id, RESPONSE));
    for (let sent = 0; sent <= MiB; sent += 16_384) peer.send(data(id, Buffer.alloc(16_384)));
    const updates = await peer.seen(({ type, id: stream }) => type === WINDOW_UPDATE && stream === 0, 2);
    expect(updates.at(-1)?.payload.readUInt32BE(0)).toBeGreaterThanOrEqual(MiB);
  });
});
