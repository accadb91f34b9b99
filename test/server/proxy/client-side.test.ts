import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { HEADERS_LIMIT } from '../../../src/server/proxy/client-side.ts';
import { ReferenceEncoder } from '../../support/http2/reference-hpack.ts';
import {
  CONTINUATION,
  DATA,
  data,
  END_HEADERS,
  END_STREAM,
  frame,
  GOAWAY,
  goawayOf,
  HEADERS,
  headers,
  message,
  OK,
  openProxy,
  PADDED,
  PING,
  PRIORITY,
  PUSH_PROMISE,
  parseFrames,
  RESPONSE,
  RST_STREAM,
  request,
  resetsOf,
  rst,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  startProxy,
  typesOf,
  u32,
  WINDOW_UPDATE,
  windowUpdate,
  withStream,
} from '../../support/http2/wire.ts';

describe('a protocol violation of the client ends its connection with the error of RFC 9113', () => {
  const cases: [what: string, code: number, bytes: Buffer][] = [
    ['DATA on stream 0 (6.1)', ErrorCode.PROTOCOL_ERROR, data(0, Buffer.of(1))],
    ['padding longer than DATA (6.1)', ErrorCode.PROTOCOL_ERROR, frame(DATA, PADDED, 1, Buffer.of(5, 1, 2))],
    ['padding without a length (6.1)', ErrorCode.FRAME_SIZE_ERROR, frame(DATA, PADDED, 1)],
    ['HEADERS on stream 0 (6.2)', ErrorCode.PROTOCOL_ERROR, headers(0, request('/pass'))],
    ['padding longer than HEADERS (6.2)', ErrorCode.PROTOCOL_ERROR, frame(HEADERS, PADDED | 4, 3, Buffer.of(9, 0x82))],
    ['a priority that is cut off (6.2)', ErrorCode.PROTOCOL_ERROR, frame(HEADERS, 0x24, 3, Buffer.of(0, 0))],
    ['PRIORITY of a wrong length (6.3)', ErrorCode.FRAME_SIZE_ERROR, frame(PRIORITY, 0, 3, Buffer.alloc(4))],
    ['PRIORITY on stream 0 (6.3)', ErrorCode.PROTOCOL_ERROR, frame(PRIORITY, 0, 0, Buffer.alloc(5))],
    ['RST_STREAM of a wrong length (6.4)', ErrorCode.FRAME_SIZE_ERROR, frame(RST_STREAM, 0, 1, Buffer.alloc(5))],
    ['RST_STREAM on stream 0 (6.4)', ErrorCode.PROTOCOL_ERROR, rst(0, 8)],
    ['RST_STREAM on an idle stream (6.4)', ErrorCode.PROTOCOL_ERROR, rst(99, 8)],
    ['SETTINGS on a stream (6.5)', ErrorCode.PROTOCOL_ERROR, frame(SETTINGS, 0, 1)],
    ['SETTINGS of a broken length (6.5)', ErrorCode.FRAME_SIZE_ERROR, frame(SETTINGS, 0, 0, Buffer.alloc(7))],
    ['an acknowledgement with content (6.5)', ErrorCode.FRAME_SIZE_ERROR, frame(SETTINGS, 1, 0, Buffer.alloc(6))],
    ['ENABLE_PUSH 2 (6.5.2)', ErrorCode.PROTOCOL_ERROR, settings([2, 2])],
    ['INITIAL_WINDOW_SIZE 2^31 (6.5.2)', ErrorCode.FLOW_CONTROL_ERROR, settings([4, 2 ** 31])],
    ['MAX_FRAME_SIZE 16383 (6.5.2)', ErrorCode.PROTOCOL_ERROR, settings([5, 16_383])],
    ['MAX_FRAME_SIZE 2^24 (6.5.2)', ErrorCode.PROTOCOL_ERROR, settings([5, 2 ** 24])],
    ['PUSH_PROMISE (8.4)', ErrorCode.PROTOCOL_ERROR, frame(PUSH_PROMISE, 4, 1, u32(2))],
    ['PING on a stream (6.7)', ErrorCode.PROTOCOL_ERROR, frame(PING, 0, 1, Buffer.alloc(8))],
    ['PING of a wrong length (6.7)', ErrorCode.FRAME_SIZE_ERROR, frame(PING, 0, 0, Buffer.alloc(7))],
    ['GOAWAY on a stream (6.8)', ErrorCode.PROTOCOL_ERROR, frame(GOAWAY, 0, 1, u32(0, 0))],
    ['GOAWAY too short (6.8)', ErrorCode.FRAME_SIZE_ERROR, frame(GOAWAY, 0, 0, u32(0))],
    ['WINDOW_UPDATE of a wrong length (6.9)', ErrorCode.FRAME_SIZE_ERROR, frame(WINDOW_UPDATE, 0, 0, Buffer.alloc(3))],
    ['WINDOW_UPDATE of 0 (6.9)', ErrorCode.PROTOCOL_ERROR, windowUpdate(0, 0)],
    ['WINDOW_UPDATE on an idle stream (5.1)', ErrorCode.PROTOCOL_ERROR, windowUpdate(7, 1)],
    ['a connection window over 2^31-1 (6.9.1)', ErrorCode.FLOW_CONTROL_ERROR, windowUpdate(0, 2 ** 31 - 1)],
    ['CONTINUATION without HEADERS (6.10)', ErrorCode.PROTOCOL_ERROR, frame(CONTINUATION, 4, 1)],
    [
      'a frame between HEADERS and CONTINUATION (6.10)',
      ErrorCode.PROTOCOL_ERROR,
      Buffer.concat([frame(HEADERS, 0, 3, Buffer.of(0x83)), frame(PING, 0, 0, Buffer.alloc(8))]),
    ],
    [
      'CONTINUATION of another stream (6.10)',
      ErrorCode.PROTOCOL_ERROR,
      Buffer.concat([frame(HEADERS, 0, 3, Buffer.of(0x83)), frame(CONTINUATION, 4, 5)]),
    ],
    ['a frame longer than allowed (4.2)', ErrorCode.FRAME_SIZE_ERROR, data(1, Buffer.alloc(16_385))],
    ['a stream with an even id (5.1.1)', ErrorCode.PROTOCOL_ERROR, headers(2, request('/pass'))],
    ['DATA on an idle stream (5.1)', ErrorCode.PROTOCOL_ERROR, data(7, Buffer.of(1))],
    [
      'a stream id lower than an earlier one (5.1.1)',
      ErrorCode.STREAM_CLOSED,
      Buffer.concat([headers(9, request('/pass')), headers(5, request('/pass'))]),
    ],
    ['an invalid header block (4.3)', ErrorCode.COMPRESSION_ERROR, frame(HEADERS, 4, 3, Buffer.of(0x80))],
    [
      'a stream window over 2^31-1 by SETTINGS (6.9.2)',
      ErrorCode.FLOW_CONTROL_ERROR,
      Buffer.concat([windowUpdate(1, 2 ** 31 - 1 - 65_535), settings([4, 65_536])]),
    ],
  ];

  test.each(cases)('ends the client connection after %s with error code %i', (_, code, bytes) => {
    const proxy = withStream();
    proxy.client.send(bytes);
    // SETTINGS take effect with the acknowledgement.
    if (!proxy.client.ended) proxy.backend.send(SETTINGS_ACK);
    expect(goawayOf(proxy.client.take())?.code).toBe(code);
    expect(proxy.client.ended).toBe(true);
    expect(proxy.backend.ended).toBe(true);
    expect(proxy.events.filter((event) => event.startsWith('error'))).toHaveLength(1);
    expect(proxy.events).toContain('/pass/A pass cancelled undefined');
  });

  test('a client that does not speak HTTP/2 gets no answer', () => {
    const proxy = startProxy();
    proxy.client.send(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    expect(proxy.client.takeBytes()).toHaveLength(0);
    expect(proxy.client.ended).toBe(true);
  });

  test('nothing is read or written after the end of a connection', () => {
    const proxy = withStream();
    proxy.client.send(frame(PING, 0, 1, Buffer.alloc(8)));
    proxy.client.take();
    proxy.client.send(headers(3, request('/pass')));
    proxy.backend.send(headers(1, RESPONSE));
    expect(proxy.client.takeBytes()).toHaveLength(0);
  });
});

describe('a stream error ends only that stream', () => {
  test.each<[what: string, code: number, bytes: Buffer]>([
    ['WINDOW_UPDATE of 0', ErrorCode.PROTOCOL_ERROR, windowUpdate(1, 0)],
    ['a window over 2^31-1', ErrorCode.FLOW_CONTROL_ERROR, windowUpdate(1, 2 ** 31 - 1)],
    ['HEADERS in the middle of a request', ErrorCode.PROTOCOL_ERROR, headers(1, OK)],
    [
      'DATA after the end of the request',
      ErrorCode.STREAM_CLOSED,
      Buffer.concat([data(1, Buffer.of(1), true), data(1, Buffer.of(2))]),
    ],
    [
      'trailers after the end of the request',
      ErrorCode.STREAM_CLOSED,
      Buffer.concat([data(1, Buffer.of(1), true), headers(1, OK, true)]),
    ],
  ])('a stream error ends only that stream: %s', (_, code, bytes) => {
    for (const path of ['/pass/A', '/handle/A', '/amend/A']) {
      const proxy = withStream(path);
      proxy.locals[0]?.take();
      proxy.client.send(bytes);
      const server = path === '/handle/A' ? proxy.locals[0]! : proxy.backend;
      expect(resetsOf(proxy.client.take())).toEqual([[1, code]]);
      expect(resetsOf(server.take())).toEqual([[1, code]]);
      expect(proxy.core.streams.running).toBe(0);
      proxy.client.send(headers(3, request('/pass/B'), true));
      expect(typesOf(proxy.backend.take())).toEqual([HEADERS]);
    }
  });

  test('frames for a closed stream are dropped, and their window is returned', () => {
    const proxy = withStream();
    proxy.backend.send(rst(1, ErrorCode.CANCEL));
    expect(resetsOf(proxy.client.take())).toEqual([[1, ErrorCode.CANCEL]]);
    proxy.client.send(data(1, Buffer.alloc(100)), windowUpdate(1, 5), rst(1, 8), headers(1, OK, true));
    expect(proxy.backend.take()).toEqual([]);
    expect(proxy.client.take()).toEqual([{ type: WINDOW_UPDATE, flags: 0, id: 0, payload: u32(100) }]);
    expect(proxy.client.ended).toBe(false);
  });
});

const STREAMS = 400;

/** One read of requests whose fields are references to one large field in the client's dynamic table. */
function bombs(path: string): Buffer {
  const encoder = new ReferenceEncoder(4096);
  const field = { name: 'x', value: 'a'.repeat(3500), index: true };
  const fields = request(
    path,
    Array.from({ length: 70 }, () => field),
  );
  const frames = Array.from({ length: STREAMS }, (_, at) =>
    frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 3, encoder.encode(fields)),
  );
  return Buffer.concat(frames);
}

const streamsIn = (bytes: Buffer): number => parseFrames(bytes).frames.filter(({ type }) => type === HEADERS).length;

describe('header blocks that refer to a large field again and again', () => {
  const read = bombs('/pass/A');

  test('hundreds of header blocks that refer to a large field fit in one read', () => {
    expect(read.length).toBeLessThan(65_536);
  });

  test.each(['/pass/A', '/handle/A', '/amend/A'])(
    'header blocks that refer to a large field wait until the server has taken earlier ones: %s',
    (path) => {
      const proxy = openProxy();
      proxy.client.send(headers(1, request(path), true));
      const server = path.startsWith('/handle') ? proxy.locals[0]! : proxy.backend;
      server.takeBytes();
      const write = server.write.bind(server);
      server.write = (slices, size) => {
        server.backlog += size;
        write(slices, size);
      };
      proxy.client.send(bombs(path));
      let largest = 0;
      let seen = 0;
      // An earlier version wrote 93 MiB at once.
      for (let round = 0; round < STREAMS && seen < STREAMS; round += 1) {
        const written = server.takeBytes();
        largest = Math.max(largest, written.length);
        seen += streamsIn(written);
        server.backlog = 0;
        server.events.drained();
      }
      expect([seen, largest < MiB, proxy.client.paused]).toEqual([STREAMS, true, false]);
    },
  );

  test('header blocks that refer to a large field do not wait for a backend that is gone', () => {
    const proxy = openProxy();
    proxy.backend.backlog = 1;
    proxy.client.send(bombs('/pass/A'));
    expect(proxy.client.paused).toBe(true);
    proxy.backend.events.closed(undefined);
    expect(proxy.client.paused).toBe(false);
  });
});

test('headers of calls that turn out to be compressed wait until the local server has taken earlier ones', () => {
  const proxy = openProxy({ handle: () => undefined });
  // A client sends only some bytes of these headers.
  const encoder = new ReferenceEncoder(4096);
  const large = ['a', 'b'].map((name) => ({ name, value: name.repeat(1700), index: true }));
  for (let at = 0; at < STREAMS; at += 1)
    proxy.client.send(frame(HEADERS, END_HEADERS, 2 * at + 1, encoder.encode(request('/handle/A', large))));
  const ends = Array.from({ length: STREAMS }, (_, at) => data(2 * at + 1, message(Buffer.of(7), true), true));
  proxy.client.send(...ends.slice(0, 1));
  const local = proxy.locals[0]!;
  local.takeBytes();
  local.backlog = 1;
  proxy.client.send(...ends.slice(1));
  expect([proxy.core.client.waits, proxy.client.paused]).toEqual([true, true]);
  const first = local.takeBytes().length;
  expect([first > HEADERS_LIMIT, first < HEADERS_LIMIT + 16_384]).toEqual([true, true]);
  let seen = first;
  for (let round = 0; round < STREAMS && proxy.core.client.waits; round += 1) {
    local.backlog = 0;
    local.events.drained();
    seen += local.takeBytes().length;
  }
  expect(seen).toBeGreaterThan((STREAMS - 1) * 3400);
});
