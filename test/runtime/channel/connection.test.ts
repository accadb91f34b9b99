import { status } from '@grpc/grpc-js';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { isServiceError, Metadata } from '../../../src/core/grpc.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import { Channel } from '../../../src/runtime/channel/channel.ts';
import { Connection } from '../../../src/runtime/channel/connection.ts';
import { ResponseMemory } from '../../../src/runtime/channel/response.ts';
import { Call } from '../../../src/runtime/channel/stream.ts';
import { answer, failureOf, LIMIT, PATH, ServedChannel } from '../../support/channel/served-channel.ts';
import { RawServer } from '../../support/http2/raw-server.ts';
import {
  ACK,
  CONTINUATION,
  DATA,
  data,
  dataOf,
  END_HEADERS,
  END_STREAM,
  frame,
  GOAWAY,
  goaway,
  goawayOf,
  HEADERS,
  headers,
  message,
  OK,
  PADDED,
  PING,
  PRIORITY,
  PUSH_PROMISE,
  RESPONSE,
  RST_STREAM,
  resetsOf,
  rst,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  u32,
  WINDOW_UPDATE,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

afterEach(() => void vi.useRealTimers());

const subject = new ServedChannel();
const { call, started } = subject;

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
    ['a stream that the server opens', data(2, Buffer.alloc(1)), PROTOCOL_ERROR],
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

describe('the end of a call', () => {
  const subject = new ServedChannel();
  const { call, started } = subject;

  const trailers = (...fields: [name: string, value: string][]) => fields.map(([name, value]) => ({ name, value }));

  test('a call ends with the status, the decoded message and the trailers of the server', async () => {
    const { running, peer, id } = await started();
    const fields = trailers(
      ['grpc-status', '5'],
      ['grpc-message', 'no pod %22gr%C3%BCn%22'],
      ['grpc-status-details-bin', 'CAUSAA'],
      ['x-more', 'a'],
      ['x-more', 'b'],
    );
    peer.send(headers(id, RESPONSE), headers(id, fields, true));
    const error = await running.catch((reason: unknown) => reason);
    expect(isServiceError(error) && [error.code, error.details, error.message]).toEqual([
      status.NOT_FOUND,
      'no pod "grün"',
      '5 NOT_FOUND: no pod "grün"',
    ]);
    expect(isServiceError(error) && error.metadata.get('grpc-status-details-bin')).toEqual([Buffer.of(8, 5, 18, 0)]);
    expect(isServiceError(error) && error.metadata.get('x-more')).toEqual(['a', 'b']);
  });

  test('a call ends with DEADLINE_EXCEEDED if the server resets its stream at the deadline, as grpc-go does', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { running, peer, id } = await started({ deadline: performance.now() + 50 });
    vi.advanceTimersByTime(50);
    peer.send(rst(id, 8));
    expect((await failureOf(running))[0]).toBe(status.DEADLINE_EXCEEDED);
  });

  test.each([
    ['a response of trailers only', trailers(['grpc-status', '12'], ['grpc-message', 'x']), [12, 'x']],
    ['an unknown status', trailers(['grpc-status', '99']), [99, '']],
    ['a status that is no number', trailers(['grpc-status', 'x'], ['grpc-message', 'y']), [2, 'y']],
    ['an empty status', trailers(['grpc-status', '']), [2, 'the backend ended the call with an invalid status']],
    ['no status', [], [2, 'Received HTTP status code 200']],
    ['no message', trailers(['grpc-status', '0']), [13, 'the backend answered a unary call with no message']],
  ])('a HEADERS frame that ends the stream ends the call with a gRPC status: %s', async (_, fields, expected) => {
    const { running, peer, id } = await started();
    peer.send(headers(id, [...RESPONSE, ...fields], true));
    expect(await failureOf(running)).toEqual(expected);
  });

  test.each([
    [400, status.INTERNAL],
    [401, status.UNAUTHENTICATED],
    [403, status.PERMISSION_DENIED],
    [404, status.UNIMPLEMENTED],
    [429, status.UNAVAILABLE],
    [500, status.UNKNOWN],
    [502, status.UNAVAILABLE],
    [503, status.UNAVAILABLE],
    [504, status.UNAVAILABLE],
    [418, status.UNKNOWN],
  ])('HTTP status %d becomes a gRPC status, even with an HTML body', async (http, code) => {
    const { running, peer, id } = await started();
    const fields = trailers([':status', `${http}`], ['content-type', 'text/html']);
    peer.send(headers(id, fields), data(id, Buffer.from('<html>a long page</html>'), true));
    expect(await failureOf(running)).toEqual([code, `Received HTTP status code ${http}`]);
  });

  test('an HTTP error with a gRPC status ends a call with that gRPC status', async () => {
    const { running, peer, id } = await started();
    peer.send(headers(id, trailers([':status', '503'])), data(id, Buffer.from('page')));
    peer.send(headers(id, trailers(['grpc-status', '8'], ['grpc-message', 'full']), true));
    expect(await failureOf(running)).toEqual([status.RESOURCE_EXHAUSTED, 'full']);
  });

  const part = message(Buffer.from('answer')).subarray(0, 8);
  test.each([
    [
      'another content type',
      (id: number) => headers(id, trailers([':status', '200'], ['content-type', 'text/html'])),
      2,
      'text/html',
    ],
    ['data first', (id: number) => data(id, part), 13, 'data before the header fields'],
    ['no HTTP status', (id: number) => headers(id, trailers(['a', 'b'])), 13, 'no HTTP status'],
    ['an invalid HTTP status', (id: number) => headers(id, trailers([':status', '2e2x'])), 13, 'no HTTP status'],
    ['an interim status as the last', (id: number) => headers(id, trailers([':status', '100']), true), 13, '100'],
    [
      'more header fields',
      (id: number) => Buffer.concat([headers(id, RESPONSE), headers(id, OK)]),
      13,
      'more header fields',
    ],
    [
      'compressed',
      (id: number) => Buffer.concat([headers(id, RESPONSE), data(id, message(part, true))]),
      13,
      'compressed',
    ],
    [
      'too long',
      (id: number) => Buffer.concat([headers(id, RESPONSE), data(id, Buffer.of(0, 1, 0, 0, 0))]),
      8,
      '16777216 vs 4000000',
    ],
    [
      'half a message',
      (id: number) => Buffer.concat([headers(id, RESPONSE), data(id, part), headers(id, OK, true)]),
      13,
      'an incomplete message',
    ],
    [
      'no trailers',
      (id: number) => Buffer.concat([headers(id, RESPONSE), data(id, message(part), true)]),
      13,
      'without a gRPC status',
    ],
  ] as const)(
    'a malformed response fails its call and keeps the connection: %s',
    async (_, response, code, details) => {
      const { running, peer, id } = await started();
      peer.send(response(id));
      expect(await failureOf(running)).toEqual([code, expect.stringContaining(details)]);
      const second = call();
      await peer.requests(2);
      peer.send(answer(3));
      expect((await second).toString()).toBe('answer');
    },
  );

  test.each([
    [0, status.INTERNAL, 'Received RST_STREAM with code 0'],
    [2, status.INTERNAL, 'Received RST_STREAM with code 2'],
    [8, status.CANCELLED, 'Call cancelled'],
    [11, status.RESOURCE_EXHAUSTED, 'Bandwidth exhausted or memory limit exceeded'],
    [12, status.PERMISSION_DENIED, 'Protocol not secure enough'],
    [4_294_967_295, status.INTERNAL, 'Received RST_STREAM with code 4294967295'],
  ])('a call that the server resets ends with the gRPC status for RST_STREAM code %d', async (code, ...expected) => {
    const { running, peer, id } = await started();
    peer.send(rst(id, code));
    expect(await failureOf(running)).toEqual(expected);
  });

  test.each([
    ['RST_STREAM', (id: number) => rst(id, 7)],
    ['GOAWAY', () => goaway(0, 0)],
  ])('a call refused after its header fields ends with UNAVAILABLE and is not sent again: %s', async (_, refusal) => {
    for (const [index, first] of [RESPONSE, trailers([':status', '103'])].entries()) {
      const own = new Channel(subject.server.path, LIMIT, () => undefined);
      const running = own.call({
        ...{ path: PATH, message: Buffer.alloc(0), metadata: undefined, deadline: Infinity, signal: undefined },
      });
      running.catch(() => undefined);
      const peer = await subject.server.peer(index);
      const [id = 0] = await peer.requests();
      const refused = failureOf(running);
      peer.send(headers(id, first), refusal(id));
      const again = peer.requests(2).then(() => 'sent again');
      const other = subject.server.peer(index + 1).then(() => 'sent again');
      expect(await Promise.race([refused, again, other])).toEqual([status.UNAVAILABLE, 'Stream refused by server']);
      // The server has processed this call, so it may have had an effect.
      await expect(running).rejects.toMatchObject({ isUnsent: false });
      own.close();
    }
  });

  test.each([0, 2, 7, 8])(
    'a call with an HTTP error ends with its HTTP status, although RST_STREAM %d follows',
    async (code) => {
      const { running, peer, id } = await started();
      peer.send(headers(id, trailers([':status', '503'], ['content-type', 'text/html'])), rst(id, code));
      expect(await failureOf(running)).toEqual([status.UNAVAILABLE, 'Received HTTP status code 503']);
    },
  );

  test('a call ends at its deadline, and its stream is reset', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const { running, peer, id } = await started({ deadline: performance.now() + 50 });
    vi.advanceTimersByTime(50);
    expect(await failureOf(running)).toEqual([status.DEADLINE_EXCEEDED, 'Deadline exceeded after 0.050s']);
    expect(resetsOf(await peer.seen(({ type }) => type === RST_STREAM))).toEqual([[id, 8]]);
    expect(subject.channel.calls).toBe(0);
  });

  test('a call ends when its caller cancels it, and its stream is reset', async () => {
    const abort = new AbortController();
    const { running, peer, id } = await started({ signal: abort.signal });
    abort.abort();
    expect(await failureOf(running)).toEqual([status.CANCELLED, 'Cancelled on client']);
    expect(resetsOf(await peer.seen(({ type }) => type === RST_STREAM))).toEqual([[id, 8]]);
    expect(await failureOf(call({ signal: abort.signal }))).toEqual([status.CANCELLED, 'Cancelled on client']);
  });

  test('a call that the server answers early ends, and the rest of its request is not sent', async () => {
    const { running, peer, id } = await started({ request: Buffer.alloc(1_000_000) });
    await expect.poll(() => dataOf(peer.frames, id).length, LONG_WAIT).toBe(65_535);
    peer.send(headers(id, [...RESPONSE, ...trailers(['grpc-status', '8'])], true));
    expect((await failureOf(running))[0]).toBe(8);
    expect(resetsOf(await peer.seen(({ type }) => type === RST_STREAM))).toEqual([[id, 8]]);
    peer.send(windowUpdate(0, 1_000_000), windowUpdate(id, 1_000_000), frame(PING, 0, 0, Buffer.alloc(8)));
    await peer.seen(({ type }) => type === PING);
    expect(dataOf(peer.frames, id)).toHaveLength(65_535);
  });
});

describe('flow control', () => {
  const subject = new ServedChannel();
  const { call, started } = subject;

  test('a request larger than the windows of the server waits for them, in frames of at most 16 KiB', async () => {
    const request = Buffer.alloc(200_000, 'abc');
    const { running, peer, id } = await started({ request });
    const sent = (): number => dataOf(peer.frames, id).length;
    await expect.poll(sent, LONG_WAIT).toBe(65_535);
    peer.send(windowUpdate(0, 1_000_000));
    // The window of the stream is still empty.
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
    // Small calls that follow the large one in this order would have waited for it.
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
