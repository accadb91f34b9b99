import { describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/server/http2/errors.ts';
import type { SeenFrame, Table } from '../../support/http2/wire.ts';
import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  GOAWAY,
  HEADERS,
  OK,
  PADDED,
  PING,
  PREFACE,
  PRIORITY,
  PUSH_PROMISE,
  RESPONSE,
  RST_STREAM,
  SETTINGS,
  SETTINGS_ACK,
  WINDOW_UPDATE,
  data,
  frame,
  headers,
  createTable,
  openTable,
  request,
  rst,
  settings,
  typesOf,
  u32,
  windowUpdate,
} from '../../support/http2/wire.ts';

function goawayOf(frames: readonly SeenFrame[]): { last: number; code: number } | undefined {
  const seen = frames.find(({ type }) => type === GOAWAY);
  return seen && { last: seen.payload.readUInt32BE(0), code: seen.payload.readUInt32BE(4) };
}

const resetsOf = (frames: readonly SeenFrame[]): [number, number][] =>
  frames.filter(({ type }) => type === RST_STREAM).map(({ id, payload }) => [id, payload.readUInt32BE(0)]);

function withStream(path = '/pass/A', last = false): Table {
  const table = openTable();
  table.client.send(headers(1, request(path), last));
  table.backend.take();
  return table;
}

describe('what a client may not do ends its connection, with the error of RFC 9113', () => {
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
    ['a stream with an even number (5.1.1)', ErrorCode.PROTOCOL_ERROR, headers(2, request('/pass'))],
    ['DATA on an idle stream (5.1)', ErrorCode.PROTOCOL_ERROR, data(7, Buffer.of(1))],
    [
      'a number that goes back (5.1.1)',
      ErrorCode.STREAM_CLOSED,
      Buffer.concat([headers(9, request('/pass')), headers(5, request('/pass'))]),
    ],
    ['a header block that means nothing (4.3)', ErrorCode.COMPRESSION_ERROR, frame(HEADERS, 4, 3, Buffer.of(0x80))],
    [
      'a stream window over 2^31-1 by SETTINGS (6.9.2)',
      ErrorCode.FLOW_CONTROL_ERROR,
      Buffer.concat([windowUpdate(1, 2 ** 31 - 1 - 65_535), settings([4, 65_536])]),
    ],
  ];

  test.each(cases)('%s: %i', (_, code, bytes) => {
    const table = withStream();
    table.client.send(bytes);
    // The acknowledgement makes SETTINGS count.
    if (!table.client.ended) table.backend.send(SETTINGS_ACK);
    expect(goawayOf(table.client.take())?.code).toBe(code);
    expect(table.client.ended).toBe(true);
    expect(table.backend.ended).toBe(true);
    expect(table.events.filter((event) => event.startsWith('error'))).toHaveLength(1);
    expect(table.events).toContain('/pass/A pass cancelled undefined');
  });

  test('a client that does not speak HTTP/2 gets no answer', () => {
    const table = createTable();
    table.client.send(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    expect(table.client.takeBytes()).toHaveLength(0);
    expect(table.client.ended).toBe(true);
  });

  test('the first frame has to be SETTINGS (3.4)', () => {
    const table = createTable();
    table.client.send(PREFACE, windowUpdate(0, 1));
    expect(table.client.ended).toBe(true);
    expect(table.events).toEqual(['error client 1 the first frame is not SETTINGS']);
  });

  test('after the end of a connection nothing is read or written', () => {
    const table = withStream();
    table.client.send(frame(PING, 0, 1, Buffer.alloc(8)));
    table.client.take();
    table.client.send(headers(3, request('/pass')));
    table.backend.send(headers(1, RESPONSE));
    expect(table.client.takeBytes()).toHaveLength(0);
  });
});

describe('floods are cut off with ENHANCE_YOUR_CALM', () => {
  test.each([
    ['empty CONTINUATION frames', frame(CONTINUATION, 0, 3), frame(HEADERS, 0, 3)],
    ['PING', frame(PING, 0, 0, Buffer.alloc(8)), Buffer.alloc(0)],
    ['SETTINGS', settings([4, 70_000]), Buffer.alloc(0)],
  ])('%s', (_, repeated, first) => {
    const table = withStream();
    table.client.send(first);
    for (let sent = 0; sent < 200 && !table.client.ended; sent += 1)
      table.client.send(Buffer.concat(Array.from({ length: 100 }, () => repeated)));
    expect(goawayOf(table.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('streams opened and reset at once (CVE-2023-44487)', () => {
    const table = openTable();
    for (let id = 1; id < 40_000 && !table.client.ended; id += 2)
      table.client.send(headers(id, request('/pass'), true), rst(id, ErrorCode.CANCEL));
    expect(goawayOf(table.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('a header block larger than the limit', () => {
    const table = openTable({ headerListLimit: 50_000 });
    table.client.send(frame(HEADERS, 0, 1, Buffer.alloc(16_000)));
    for (let sent = 0; sent < 4 && !table.client.ended; sent += 1)
      table.client.send(frame(CONTINUATION, 0, 1, Buffer.alloc(16_000)));
    expect(goawayOf(table.client.take())?.code).toBe(ErrorCode.ENHANCE_YOUR_CALM);
  });

  test('but pings at the rate of a busy client are accepted: over time, or with responses between them', () => {
    const ping = frame(PING, 0, 0, Buffer.alloc(8));
    const table = withStream();
    for (let sent = 0; sent < 30_000; sent += 1) {
      table.clock += 0.2;
      table.client.send(ping);
    }
    table.backend.send(headers(1, RESPONSE));
    for (let sent = 0; sent < 30_000; sent += 1) {
      table.backend.send(data(1, Buffer.of(1)));
      table.client.send(ping);
    }
    expect(table.client.ended).toBe(false);
    expect(table.client.take().filter(({ type }) => type === PING)).toHaveLength(60_000);
  });
});

describe('a stream error ends only that stream', () => {
  test.each<[what: string, code: number, bytes: Buffer]>([
    ['WINDOW_UPDATE of 0', ErrorCode.PROTOCOL_ERROR, windowUpdate(1, 0)],
    ['a window over 2^31-1', ErrorCode.FLOW_CONTROL_ERROR, windowUpdate(1, 2 ** 31 - 1)],
    ['HEADERS in the middle', ErrorCode.PROTOCOL_ERROR, headers(1, OK)],
    [
      'DATA after the end',
      ErrorCode.STREAM_CLOSED,
      Buffer.concat([data(1, Buffer.of(1), true), data(1, Buffer.of(2))]),
    ],
    [
      'trailers after the end',
      ErrorCode.STREAM_CLOSED,
      Buffer.concat([data(1, Buffer.of(1), true), headers(1, OK, true)]),
    ],
  ])('%s', (_, code, bytes) => {
    for (const path of ['/pass/A', '/handle/A', '/amend/A']) {
      const table = withStream(path);
      table.locals[0]?.take();
      table.client.send(bytes);
      const server = path === '/handle/A' ? table.locals[0]! : table.backend;
      expect(resetsOf(table.client.take())).toEqual([[1, code]]);
      expect(resetsOf(server.take())).toEqual([[1, code]]);
      expect(table.core.streams.running).toBe(0);
      table.client.send(headers(3, request('/pass/B'), true));
      expect(typesOf(table.backend.take())).toEqual([HEADERS]);
    }
  });

  test('frames for a closed stream are dropped, and their window is returned', () => {
    const table = withStream();
    table.backend.send(rst(1, ErrorCode.CANCEL));
    expect(resetsOf(table.client.take())).toEqual([[1, ErrorCode.CANCEL]]);
    table.client.send(data(1, Buffer.alloc(100)), windowUpdate(1, 5), rst(1, 8), headers(1, OK, true));
    expect(table.backend.take()).toEqual([]);
    expect(table.client.take()).toEqual([{ type: WINDOW_UPDATE, flags: 0, id: 0, payload: u32(100) }]);
    expect(table.client.ended).toBe(false);
  });
});

describe("a backend's protocol violation ends its connection, and its calls with UNAVAILABLE", () => {
  test.each<[what: string, code: number, bytes: Buffer]>([
    ['a frame on an idle stream', ErrorCode.PROTOCOL_ERROR, headers(5, RESPONSE)],
    ['a frame on a stream of its own', ErrorCode.PROTOCOL_ERROR, headers(2, RESPONSE)],
    ['PUSH_PROMISE', ErrorCode.PROTOCOL_ERROR, frame(PUSH_PROMISE, 4, 1, u32(2))],
    [
      'more DATA than the connection window',
      ErrorCode.FLOW_CONTROL_ERROR,
      Buffer.concat(Array.from({ length: 5 }, () => data(1, Buffer.alloc(16_384)))),
    ],
    ['a frame longer than allowed', ErrorCode.FRAME_SIZE_ERROR, data(1, Buffer.alloc(16_385))],
    ['padding longer than DATA', ErrorCode.PROTOCOL_ERROR, frame(DATA, PADDED, 1, Buffer.of(5, 1, 2))],
  ])('%s', (_, code, bytes) => {
    const table = withStream();
    table.backend.send(bytes);
    expect(goawayOf(table.backend.take())?.code).toBe(code);
    expect(table.backend.ended).toBe(true);
    expect(goawayOf(table.client.take())).toEqual({ last: 1, code: ErrorCode.NO_ERROR });
    expect(table.events).toContain('/pass/A pass unavailable 14');
    expect(table.client.ended).toBe(true);
  });
});

describe('legal but rare', () => {
  test('HEADERS with padding, priority and CONTINUATION arrive complete', () => {
    const plain = headers(1, request('/pass/rare')).subarray(9);
    const forms = [
      frame(HEADERS, END_HEADERS | PADDED, 3, Buffer.concat([Buffer.of(4), plain, Buffer.alloc(4)])),
      frame(HEADERS, END_HEADERS | 0x20, 5, Buffer.concat([Buffer.alloc(5), plain])),
      frame(
        HEADERS,
        END_HEADERS | 0x20 | PADDED,
        7,
        Buffer.concat([Buffer.of(2), Buffer.alloc(5), plain, Buffer.alloc(2)]),
      ),
      Buffer.concat([
        frame(HEADERS, END_STREAM, 9, plain.subarray(0, 3)),
        ...Array.from(plain.subarray(3), (octet) => frame(CONTINUATION, 0, 9, Buffer.of(octet))),
        frame(CONTINUATION, END_HEADERS, 9),
      ]),
    ];
    const table = withStream('/pass/first', true);
    for (const form of forms) {
      table.client.send(form);
      const [seen, ...others] = table.backend.take();
      expect(others).toEqual([]);
      expect(seen!.payload).toEqual(plain);
      expect(seen!.flags & END_STREAM).toBe(form[4]! & END_STREAM);
    }
  });

  test("a header block larger than the backend's maximum frame size is split", () => {
    const table = withStream('/pass/first', true);
    const long = [...request('/pass/long'), { name: 'x-long', value: 'x'.repeat(30_000) }];
    const plain = headers(3, long).subarray(9);
    table.client.send(
      frame(HEADERS, 0, 3, plain.subarray(0, 16_000)),
      frame(CONTINUATION, END_HEADERS, 3, plain.subarray(16_000)),
    );
    const seen = table.backend.take();
    expect(typesOf(seen)).toEqual([HEADERS, CONTINUATION]);
    expect(seen.map(({ payload }) => payload.length <= 16_384)).toEqual([true, true]);
    expect(Buffer.concat(seen.map(({ payload }) => payload))).toEqual(plain);
  });

  test('a larger frame size of the backend applies once the client has acknowledged it', () => {
    const table = withStream('/pass/first', true);
    const long = [...request('/pass/long'), { name: 'x-long', value: 'x'.repeat(30_000) }];
    table.backend.send(settings([5, 40_000]));
    for (const [id, expected] of [
      [3, [HEADERS, CONTINUATION]],
      [5, [HEADERS]],
    ] as const) {
      table.client.send(headers(id, long, true));
      expect(typesOf(table.backend.take())).toEqual(expected);
      table.client.send(SETTINGS_ACK);
      table.backend.take();
    }
  });

  test('a response with CONTINUATION is forwarded unchanged, with no frame in between', () => {
    const table = withStream('/pass/A', true);
    const block = headers(1, RESPONSE).subarray(9);
    table.backend.send(frame(HEADERS, 0, 1, block.subarray(0, 1)));
    table.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(typesOf(table.client.take())).toEqual([PING]);
    table.backend.send(frame(CONTINUATION, END_HEADERS, 1, block.subarray(1)));
    expect(typesOf(table.client.take())).toEqual([HEADERS, CONTINUATION]);
  });

  test('PRIORITY and unknown frames are ignored', () => {
    const table = withStream();
    table.client.send(frame(PRIORITY, 0, 1, Buffer.alloc(5)), frame(0x77, 0xff, 1, Buffer.alloc(9)), frame(16, 0, 0));
    table.backend.send(frame(0x77, 0xff, 1, Buffer.alloc(9)));
    expect(table.backend.take()).toEqual([]);
    expect(table.client.take()).toEqual([]);
  });

  test('responses do not wait for one another: padded DATA and an early END_STREAM are forwarded unchanged', () => {
    const table = withStream();
    const early = [
      headers(1, RESPONSE),
      frame(DATA, PADDED, 1, Buffer.of(3, 7, 8, 0, 0, 0)),
      headers(1, OK, true),
      rst(1, 0),
    ];
    table.backend.send(...early);
    expect(table.client.takeBytes()).toEqual(Buffer.concat(early));
    expect(table.events).toEqual(['/pass/A pass answered 0']);
  });
});

describe('the proxy answers pings from every side', () => {
  test('an answer is sent with the next burst, or alone after a delay', () => {
    vi.useFakeTimers();
    const table = openTable({ deferredWriteDelay: 1 });
    table.client.send(headers(1, request('/pass/A'), true));
    table.backend.take();
    table.client.writes = 0;
    const ping = frame(PING, 0, 0, Buffer.from('12345678'));
    table.client.send(ping, ping);
    expect(table.client.take()).toEqual([]);
    table.backend.send(ping, headers(1, RESPONSE));
    expect(typesOf(table.client.take())).toEqual([PING, PING, HEADERS]);
    expect(table.client.writes).toBe(1);
    expect(table.backend.take()).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(typesOf(table.backend.take())).toEqual([PING]);
    table.client.send(ping);
    table.core.shutdown();
    expect(typesOf(table.client.take())).toContain(PING);
    vi.useRealTimers();
  });

  test('each is answered with its own opaque data', () => {
    const table = withStream('/handle/A');
    const local = table.locals[0]!;
    local.take();
    for (const side of [table.client, table.backend, local]) {
      const opaque = Buffer.from('12345678');
      side.send(frame(PING, 0, 0, opaque));
      expect(side.take()).toEqual([{ type: PING, flags: 1, id: 0, payload: opaque }]);
      side.send(frame(PING, 1, 0, opaque));
    }
    for (const side of [table.client, table.backend, local]) expect(side.take()).toEqual([]);
  });
});
