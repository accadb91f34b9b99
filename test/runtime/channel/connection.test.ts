import { status } from '@grpc/grpc-js';
import { Metadata } from '../../../src/core/grpc.ts';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Call } from '../../../src/runtime/channel/stream.ts';
import { Connection } from '../../../src/runtime/channel/connection.ts';
import { Channel } from '../../../src/runtime/channel/channel.ts';
import { ResponseMemory } from '../../../src/runtime/channel/response.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import { LIMIT, PATH, ServedChannel, answer, failureOf } from '../../support/channel/served-channel.ts';
import { RawServer } from '../../support/http2/raw-server.ts';
import {
  ACK,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  GOAWAY,
  HEADERS,
  OK,
  PADDED,
  PING,
  PRIORITY,
  PUSH_PROMISE,
  RESPONSE,
  SETTINGS,
  SETTINGS_ACK,
  data,
  frame,
  goawayOf,
  headers,
  message,
  rst,
  settings,
  u32,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

const subject = new ServedChannel();
const { call, started } = subject;

afterEach(() => void vi.useRealTimers());

describe('a call', () => {
  test('a call is sent as HEADERS and DATA in one write, without a dynamic table, and returns the response bytes', async () => {
    const { running, peer, id } = await started();
    peer.send(answer(id));
    expect((await running).toString()).toBe('answer');
    const before = peer.chunks;
    const second = call();
    const frames = await peer.seen(({ id: stream, type }) => stream === 3 && type === DATA);
    expect(frames).toMatchObject([{ flags: END_STREAM, payload: message(Buffer.from('ask')) }]);
    expect(peer.chunks).toBe(before + 1);
    const block = peer.frames.find(({ type, id: stream }) => type === HEADERS && stream === 3)!.payload;
    expect(
      Object.fromEntries(new HpackDecoder(0, 65_536).decode(block).map(({ name, value }) => [name, value])),
    ).toEqual({
      ':method': 'POST',
      ':scheme': 'http',
      ':path': PATH,
      ':authority': 'localhost',
      'content-type': 'application/grpc',
      te: 'trailers',
      'user-agent': 'grpc-node-cri-resize-shim/1.0',
    });
    peer.send(answer(3));
    await second;
  });

  test('a call sends its remaining timeout and the metadata of its caller', async () => {
    const metadata = new Metadata();
    metadata.add('x-id', 'a');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const deadline = performance.now() + 5000;
    vi.advanceTimersByTime(1234);
    const { running, peer, id } = await started({ deadline, metadata });
    const fields = peer.fieldsOf(peer.frames.find(({ type }) => type === HEADERS)!);
    expect(fields['x-id']).toBe('a');
    expect(fields['grpc-timeout']).toBe('3766m');
    peer.send(answer(id));
    await running;
  });

  test('calls that are made in one turn of the event loop are sent in one write', async () => {
    const { running, peer, id } = await started();
    peer.send(answer(id));
    await running;
    const before = peer.chunks;
    const three = [call(), call(), call()];
    const ids = await peer.requests(4);
    expect(ids).toEqual([1, 3, 5, 7]);
    expect(peer.chunks).toBe(before + 1);
    for (const stream of [7, 3, 5]) peer.send(answer(stream, Buffer.from(`${stream}`)));
    expect((await Promise.all(three)).map(String)).toEqual(['3', '5', '7']);
  });

  test('the first SETTINGS of the client disable the dynamic table and server push', async () => {
    const { peer, running, id } = await started();
    const [first] = peer.frames;
    expect(first).toMatchObject({ type: SETTINGS, flags: 0 });
    const values = Array.from({ length: first!.payload.length / 6 }, (_, index) => [
      first!.payload.readUInt16BE(6 * index),
      first!.payload.readUInt32BE(6 * index + 2),
    ]);
    expect(values).toEqual([
      [1, 0],
      [2, 0],
      [4, MiB],
      [6, MiB],
    ]);
    await peer.seen(({ type, flags }) => type === SETTINGS && flags === ACK);
    peer.send(answer(id));
    await running;
  });

  test('a response is read wherever its bytes are split', async () => {
    const whole = Buffer.concat([
      frame(PING, 0, 0, Buffer.alloc(8)),
      answer(1),
      settings([4, 70_000]),
      answer(3, Buffer.alloc(0)),
    ]);
    for (let at = 1; at < whole.length; at += 1) {
      const own = new Channel(subject.server.path, LIMIT, () => undefined);
      const calls = [1, 2].map(() =>
        own.call({ path: PATH, message: Buffer.alloc(0), metadata: undefined, deadline: Infinity, signal: undefined }),
      );
      const peer = await subject.server.peer(at - 1);
      await peer.requests(2);
      peer.send(whole.subarray(0, at));
      await new Promise(setImmediate);
      peer.send(whole.subarray(at));
      expect((await Promise.all(calls)).map(String)).toEqual(['answer', '']);
      own.close();
    }
  });

  test('a response in frames of one byte, with padding, is read', async () => {
    const { running, peer, id } = await started();
    peer.send(headers(id, RESPONSE));
    for (const octet of message(Buffer.from('hello'))) peer.send(frame(DATA, PADDED, id, Buffer.of(3, octet, 0, 0, 0)));
    const block = headers(id, OK).subarray(9);
    peer.send(
      frame(HEADERS, END_STREAM, id, block.subarray(0, 3)),
      frame(CONTINUATION, END_HEADERS, id, block.subarray(3)),
    );
    expect((await running).toString()).toBe('hello');
  });

  test('interim header fields and frames of unknown types are ignored', async () => {
    const { running, peer, id } = await started();
    peer.send(headers(id, [{ name: ':status', value: '103' }]), frame(99, 255, id, Buffer.alloc(3)));
    peer.send(frame(PRIORITY, 0, id, Buffer.alloc(5)), answer(id));
    expect((await running).toString()).toBe('answer');
  });

  test('a PING is acknowledged with its payload', async () => {
    const { running, peer, id } = await started();
    peer.send(frame(PING, 0, 0, Buffer.from('12345678')), frame(PING, ACK, 0, Buffer.alloc(8)), answer(id));
    await running;
    const pings = await peer.seen(({ type }) => type === PING);
    expect(pings).toMatchObject([{ flags: ACK, payload: Buffer.from('12345678') }]);
  });
});

describe('a server that violates HTTP/2', () => {
  const PROTOCOL_ERROR = 1;
  const FLOW_CONTROL_ERROR = 3;
  const FRAME_SIZE_ERROR = 6;
  const COMPRESSION_ERROR = 9;
  const CALM = 11;

  test.each([
    ['a frame that is too long', data(1, Buffer.alloc(16_385)), FRAME_SIZE_ERROR],
    ['DATA on stream 0', data(0, Buffer.alloc(1)), PROTOCOL_ERROR],
    ['a pushed response', frame(PUSH_PROMISE, END_HEADERS, 1, u32(2)), PROTOCOL_ERROR],
    ['a stream that was not opened', headers(99, RESPONSE), PROTOCOL_ERROR],
    ['a stream of its own', data(2, Buffer.alloc(1)), PROTOCOL_ERROR],
    ['a frame inside a header block', Buffer.concat([frame(HEADERS, 0, 1), data(1, Buffer.alloc(1))]), PROTOCOL_ERROR],
    ['CONTINUATION without HEADERS', frame(CONTINUATION, END_HEADERS, 1), PROTOCOL_ERROR],
    ['the dynamic table', frame(HEADERS, END_HEADERS, 1, Buffer.of(0xbe)), COMPRESSION_ERROR],
    ['half a header block', frame(HEADERS, END_HEADERS, 1, Buffer.of(0x40, 10, 65)), COMPRESSION_ERROR],
    ['a window above the largest', windowUpdate(0, 2_147_483_647), FLOW_CONTROL_ERROR],
    ['a stream’s window above the largest', windowUpdate(1, 2_147_483_647), FLOW_CONTROL_ERROR],
    ['a window of 0', windowUpdate(1, 0), PROTOCOL_ERROR],
    ['an invalid setting', settings([5, 1]), PROTOCOL_ERROR],
    ['a setting that allows it to push', settings([2, 1]), PROTOCOL_ERROR],
    ['half a setting', frame(SETTINGS, 0, 0, Buffer.alloc(5)), FRAME_SIZE_ERROR],
    ['SETTINGS of a stream', frame(SETTINGS, 0, 1), PROTOCOL_ERROR],
    ['padding longer than its frame', frame(DATA, PADDED, 1, Buffer.of(5, 0)), PROTOCOL_ERROR],
    ['GOAWAY without an error code', frame(GOAWAY, 0, 0, Buffer.alloc(4)), FRAME_SIZE_ERROR],
    [
      'a header list without an end',
      Buffer.concat([
        frame(HEADERS, 0, 1),
        ...Array.from({ length: 65 }, () => frame(CONTINUATION, 0, 1, Buffer.alloc(16_384))),
      ]),
      CALM,
    ],
    [
      'a flood of PING',
      Buffer.concat(Array.from({ length: 10_001 }, () => frame(PING, ACK, 0, Buffer.alloc(8)))),
      CALM,
    ],
    ['a flood of SETTINGS', Buffer.concat(Array.from({ length: 10_001 }, () => SETTINGS_ACK)), CALM],
    ['a flood of frames of unknown types', Buffer.concat(Array.from({ length: 10_001 }, () => frame(77, 0, 0))), CALM],
    [
      'a flood of empty DATA',
      Buffer.concat([headers(1, RESPONSE), ...Array.from({ length: 10_001 }, () => data(1, Buffer.alloc(0)))]),
      CALM,
    ],
    [
      'a flood of DATA with padding alone',
      Buffer.concat([
        headers(1, RESPONSE),
        ...Array.from({ length: 10_001 }, () =>
          frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(64), Buffer.alloc(64)])),
        ),
      ]),
      CALM,
    ],
    [
      'a flood of interim header fields',
      Buffer.concat(Array.from({ length: 10_001 }, () => headers(1, [{ name: ':status', value: '102' }]))),
      CALM,
    ],
  ])('a protocol violation closes the connection, and the next call opens another one: %s', async (_, bytes, code) => {
    const { running, peer } = await started();
    peer.send(bytes);
    const [failed, details] = await failureOf(running);
    expect([failed, details]).toEqual([status.UNAVAILABLE, expect.stringMatching(/^error reading from server: ./)]);
    await peer.seen(({ type }) => type === GOAWAY);
    expect(goawayOf(peer.frames)).toEqual({ last: 0, code });
    const second = call();
    const other = await subject.server.peer(1);
    await other.requests();
    other.send(answer(1));
    expect((await second).toString()).toBe('answer');
    expect(subject.connections).toBe(2);
  });

  test('many PINGs do not close a connection if calls end between them, also by RST_STREAM', async () => {
    const { running, peer, id } = await started();
    const pings = Buffer.concat(Array.from({ length: 6000 }, () => frame(PING, ACK, 0, Buffer.alloc(8))));
    const second = call();
    await peer.requests(2);
    peer.send(pings, rst(id, 2), pings, answer(3));
    expect((await failureOf(running))[0]).toBe(status.INTERNAL);
    expect((await second).toString()).toBe('answer');
  });

  test('a server that does not send SETTINGS first gets no call', async () => {
    await subject.server.stop();
    const rude = new RawServer();
    await rude.listen((peer) => peer.send(frame(PING, 0, 0, Buffer.alloc(8))));
    const own = new Channel(rude.path, LIMIT, () => undefined);
    const running = own.call({
      ...{ path: PATH, message: Buffer.alloc(0), metadata: undefined, deadline: Infinity, signal: undefined },
    });
    expect(await failureOf(running)).toEqual([
      status.UNAVAILABLE,
      'No connection established. Last error: the first frame is not SETTINGS',
    ]);
    own.close();
    await rude.remove();
  });
});

test('a connection without free stream ids accepts no calls, and closes after its last call', async () => {
  const seen: string[] = [];
  const ended: (string | undefined)[] = [];
  const connection = await new Promise<Connection>((resolve) => {
    const limits = { memory: new ResponseMemory(LIMIT), longestMessage: LIMIT, lastStream: 3 };
    new Connection(subject.server.path, limits, {
      ready: resolve,
      available: () => undefined,
      leaving: () => seen.push('leaving'),
      unprocessed: () => seen.push('unprocessed'),
      closed: () => seen.push('closed'),
    });
  });
  for (let started = 0; started < 2; started += 1) {
    expect(connection.isAvailable).toBe(true);
    const done = (_: unknown, response: Buffer | undefined): number => ended.push(response?.toString());
    connection.start(new Call(PATH, Buffer.alloc(0), undefined, Infinity, 0, done));
  }
  expect([connection.isAvailable, seen]).toEqual([false, ['leaving']]);
  const peer = await subject.server.peer();
  expect(await peer.requests(2)).toEqual([1, 3]);
  peer.send(answer(3), answer(1));
  await peer.closed();
  expect([ended, seen]).toEqual([
    ['answer', 'answer'],
    ['leaving', 'closed'],
  ]);
});
