import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/server/http2/errors.ts';
import { HpackDecoder } from '../../../src/server/http2/hpack/decoder.ts';
import type { SeenFrame } from '../../support/http2/wire.ts';
import {
  GOAWAY,
  HEADERS,
  OK,
  PING,
  PREFACE,
  RESPONSE,
  RST_STREAM,
  SETTINGS,
  SETTINGS_ACK,
  WINDOW_UPDATE,
  data,
  dataOf,
  frame,
  headers,
  createTable,
  message,
  openTable,
  request,
  rst,
  settings,
  typesOf,
  u32,
  windowUpdate,
} from '../../support/http2/wire.ts';

const fieldsOf = (seen: SeenFrame): Record<string, string> =>
  Object.fromEntries(new HpackDecoder(0, 65_536).decode(seen.payload).map(({ name, value }) => [name, value]));
const goaway = (last: number, code: number): Buffer => frame(GOAWAY, 0, 0, u32(last, code));

afterEach(() => void vi.useRealTimers());

describe('connection setup', () => {
  test('SETTINGS of both ends are forwarded and acknowledged once, except header table size and push', () => {
    const table = createTable();
    table.client.send(PREFACE, settings([1, 65_536], [2, 1], [4, 70_000], [6, 1000], [99, 7]));
    expect(table.client.take()).toEqual([]);
    const [toBackend, ...more] = table.backend.take();
    expect(more).toEqual([]);
    expect(toBackend!.payload).toEqual(settings([1, 0], [2, 0], [4, 70_000], [6, 1000], [99, 7]).subarray(9));
    table.backend.send(settings([1, 1_000_000], [3, 100]), SETTINGS_ACK);
    const [toClient, ack, ...others] = table.client.take();
    expect(others).toEqual([]);
    expect(toClient!.payload).toEqual(settings([3, 100]).subarray(9));
    expect([ack!.type, ack!.flags]).toEqual([SETTINGS, 1]);
    // One too many does not go to the backend.
    table.client.send(SETTINGS_ACK, SETTINGS_ACK);
    expect(table.backend.take().map(({ type, flags }) => [type, flags])).toEqual([[SETTINGS, 1]]);
    table.client.send(settings([1, 100], [2, 0], [4, 1]));
    expect(table.backend.take()[0]!.payload).toEqual(settings([4, 1]).subarray(9));
  });

  test("what the client sends waits for the backend's SETTINGS", () => {
    const table = createTable();
    table.client.send(
      PREFACE,
      settings(),
      headers(1, request('/pass/A'), true),
      headers(3, request('/handle/B'), true),
    );
    expect(typesOf(table.backend.take())).toEqual([SETTINGS]);
    expect(table.client.paused).toBe(true);
    expect(table.locals).toEqual([]);
    table.backend.send(settings());
    expect(table.client.paused).toBe(false);
    expect(typesOf(table.client.take())).toEqual([SETTINGS]);
    expect(typesOf(table.backend.take())).toEqual([HEADERS]);
    expect(typesOf(table.locals[0]!.take())).toEqual([SETTINGS, HEADERS]);
  });

  test('the client’s bytes may be cut anywhere: what comes out is the same', () => {
    const input = Buffer.concat([
      PREFACE,
      settings([4, 100]),
      headers(1, request('/pass/A')),
      headers(3, request('/handle/B')),
      data(1, Buffer.alloc(500, 'a')),
      data(3, Buffer.alloc(500, 'b'), true),
      frame(PING, 0, 0, Buffer.alloc(8, 'p')),
      headers(5, request('/amend/C')),
      data(5, message(Buffer.from('c')), true),
      rst(1, 8),
    ]);
    const run = (places: readonly number[]): string[] => {
      const table = createTable();
      table.backend.send(settings());
      const ends = [...places, input.length].sort((a, b) => a - b);
      ends.forEach((end, index) => table.client.send(input.subarray(ends[index - 1] ?? 0, end)));
      const control = new Set([WINDOW_UPDATE]);
      return [table.client, table.backend, table.locals[0]!].map((end) =>
        end
          .take()
          .filter(({ type }) => !control.has(type))
          .map(({ type, flags, id, payload }) => `${type} ${flags} ${id} ${payload.toString('hex')}`)
          .join('\n'),
      );
    };
    const expected = run([]);
    fc.assert(
      fc.property(fc.array(fc.nat(input.length), { maxLength: 60 }), (places) => {
        expect(run(places)).toEqual(expected);
      }),
    );
  });
});

describe('no backend', () => {
  test('calls end with UNAVAILABLE and the cause, and GOAWAY makes the client reconnect', () => {
    const table = createTable();
    table.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true), headers(3, request('/handle/B')));
    table.backend.events.closed(new Error('connect ENOENT /run/x.sock'));
    const seen = table.client.take();
    expect(typesOf(seen)).toEqual([SETTINGS, SETTINGS, GOAWAY, HEADERS, HEADERS]);
    expect(seen[1]!.flags).toBe(1);
    for (const answer of seen.slice(3)) {
      expect(answer.flags & 1).toBe(1);
      expect(fieldsOf(answer)).toEqual({
        ':status': '200',
        'content-type': 'application/grpc',
        'grpc-status': '14',
        'grpc-message': 'backend unavailable: connect ENOENT /run/x.sock',
      });
    }
    expect(seen[2]!.payload.readUInt32BE(0)).toBe(3);
    expect(table.client.ended).toBe(true);
    expect(table.locals).toEqual([]);
  });

  test('a later call gets the same answer; a client that never calls is disconnected', () => {
    vi.useFakeTimers();
    const table = createTable();
    table.backend.events.closed(new Error('connect ECONNREFUSED'));
    expect(typesOf(table.client.take())).toEqual([SETTINGS]);
    table.client.send(PREFACE, settings());
    expect(table.client.ended).toBe(false);
    table.client.send(headers(1, request('/pass/A'), true));
    expect(typesOf(table.client.take())).toEqual([SETTINGS, GOAWAY, HEADERS]);
    expect(table.client.ended).toBe(true);

    const idle = createTable();
    idle.backend.events.closed(new Error('connect ECONNREFUSED'));
    idle.client.send(PREFACE, settings());
    vi.advanceTimersByTime(60_000);
    expect(idle.client.ended).toBe(true);
    expect(idle.client.destroyed).toBe(true);
  });

  test('a message beyond ASCII is percent-encoded', () => {
    const table = createTable();
    table.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
    table.backend.events.closed(new Error('100% für nichts\n'));
    const answer = table.client.take().find(({ type }) => type === HEADERS)!;
    expect(fieldsOf(answer)['grpc-message']).toBe('backend unavailable: 100%25 f%C3%BCr nichts%0A');
  });

  test('a backend that does not speak HTTP/2 counts as unavailable', () => {
    const table = createTable();
    table.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
    table.backend.send(Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'));
    expect(fieldsOf(table.client.take().find(({ type }) => type === HEADERS)!)['grpc-status']).toBe('14');
    expect(table.backend.ended).toBe(true);
  });
});

describe('the backend is lost', () => {
  test('its calls end with UNAVAILABLE, local calls continue, then the client is disconnected', () => {
    const table = openTable();
    table.client.send(
      headers(1, request('/pass/unanswered')),
      headers(3, request('/pass/streaming')),
      headers(5, request('/handle/B')),
      headers(7, request('/pass/done'), true),
    );
    table.backend.send(headers(3, RESPONSE), data(3, Buffer.from('half')), headers(7, RESPONSE), headers(7, OK, true));
    table.client.take();
    table.backend.events.closed(new Error('read ECONNRESET'));
    const seen = table.client.take();
    expect(seen.map(({ type, id }) => [type, id])).toEqual([
      [HEADERS, 1],
      [HEADERS, 3],
      [GOAWAY, 0],
    ]);
    expect(fieldsOf(seen[0]!)).toMatchObject({ ':status': '200', 'grpc-status': '14' });
    expect(fieldsOf(seen[1]!)).toEqual({ 'grpc-status': '14', 'grpc-message': 'backend unavailable: read ECONNRESET' });
    expect(seen[2]!.payload.readUInt32BE(0)).toBe(7);
    expect(table.client.ended).toBe(false);
    // Nobody waits for a backend that is not there: not its acknowledgement, not the window for what goes nowhere.
    table.client.send(settings([4, 100_000]), data(5, Buffer.alloc(10)), data(3, Buffer.alloc(20)));
    const [ack, ...updates] = table.client.take();
    expect([ack!.type, ack!.flags]).toEqual([SETTINGS, 1]);
    expect(updates.filter(({ id }) => id === 0).map(({ payload }) => payload.readUInt32BE(0))).toEqual([30]);
    // A call that crossed the GOAWAY is not answered: the client knows that it may send it again.
    table.client.send(headers(9, request('/pass/late'), true), headers(11, request('/handle/late'), true));
    const local = table.locals[0]!;
    local.send(settings(), headers(5, RESPONSE), data(5, Buffer.from('done')), headers(5, OK, true));
    expect(dataOf(table.client.take(), 5).toString()).toBe('done');
    expect(table.client.ended).toBe(true);
    expect(table.events).toEqual([
      '/pass/done pass answered 0',
      'backend unavailable: read ECONNRESET',
      '/pass/unanswered pass unavailable 14',
      '/pass/streaming pass unavailable 14',
      '/handle/B handle answered 0',
    ]);
  });

  test("complete responses still arrive, at the client's pace", () => {
    const table = openTable({}, [4, 10]);
    table.client.send(headers(1, request('/handle/A'), true), headers(3, request('/pass/B'), true));
    table.locals[0]!.send(settings(), headers(1, RESPONSE), data(1, Buffer.alloc(10)));
    // The backend fills the window that it knows of, of which the local server has used a part.
    for (let round = 0; round < 6553; round += 1) table.client.send(windowUpdate(3, 10));
    table.backend.send(headers(3, RESPONSE), ...Array.from({ length: 4 }, () => data(3, Buffer.alloc(16_383))));
    table.backend.send(headers(3, OK, true));
    expect(dataOf(table.client.take(), 3)).toHaveLength(65_525);
    table.backend.events.closed(undefined);
    expect(typesOf(table.client.take())).toEqual([GOAWAY]);
    table.client.send(windowUpdate(0, 100));
    expect(dataOf(table.client.take(), 3)).toHaveLength(7);
    expect(table.events).toContain('/pass/B pass answered 0');
    expect(table.client.ended).toBe(false);
    table.client.send(rst(1, 8));
    expect(table.client.ended).toBe(true);
  });

  test('in the middle of a header block, which the client never sees', () => {
    const table = openTable();
    table.client.send(headers(1, request('/pass/A'), true));
    table.backend.send(frame(HEADERS, 0, 1, headers(1, RESPONSE).subarray(9)));
    table.backend.events.closed(undefined);
    expect(fieldsOf(table.client.take()[0]!)).toMatchObject({ ':status': '200', 'grpc-status': '14' });
  });
});

describe('GOAWAY', () => {
  test('of the backend announces no stream lower than running local streams', () => {
    const table = openTable();
    table.client.send(headers(1, request('/pass/A')), headers(3, request('/pass/B')), headers(5, request('/handle/C')));
    table.client.take();
    table.backend.send(goaway(1, ErrorCode.NO_ERROR));
    const seen = table.client.take();
    // Stream 3 is below the number, yet not served: it says so itself.
    expect(seen.map(({ type, id, payload }) => [type, id, payload.readUInt32BE(0)])).toEqual([
      [RST_STREAM, 3, ErrorCode.REFUSED_STREAM],
      [GOAWAY, 0, 5],
    ]);
    table.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    table.client.send(data(1, Buffer.alloc(0), true));
    table.backend.events.closed(undefined);
    expect(table.client.ended).toBe(false);
    table.locals[0]!.send(settings(), headers(5, RESPONSE), headers(5, OK, true));
    expect(table.client.take().filter(({ id }) => id === 5)).toHaveLength(2);
    expect(table.client.ended).toBe(true);
  });

  test('of a gracefully stopping backend is forwarded twice, and streams in between are served', () => {
    const table = openTable();
    table.backend.send(goaway(2 ** 31 - 1, 0), frame(PING, 0, 0, Buffer.alloc(8)));
    expect(table.client.take().map(({ payload }) => payload.readUInt32BE(0))).toEqual([2 ** 31 - 1]);
    table.client.send(headers(1, request('/pass/A'), true));
    expect(typesOf(table.backend.take())).toEqual([PING, HEADERS]);
    table.backend.send(goaway(1, 0));
    table.client.send(headers(3, request('/pass/B'), true));
    expect(table.backend.take()).toEqual([]);
    table.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(table.client.take().map(({ type, id }) => [type, id])).toEqual([
      [GOAWAY, 0],
      [HEADERS, 1],
      [HEADERS, 1],
    ]);
    table.backend.events.closed(undefined);
    expect(table.client.ended).toBe(true);
  });
});

describe('shutdown', () => {
  const last = 2 ** 31 - 1;
  const shutdownPing = frame(PING, 1, 0, Buffer.from('shutdown'));
  const numbersOf = (frames: readonly SeenFrame[]) =>
    frames.filter(({ type }) => type === GOAWAY).map(({ payload }) => payload.readUInt32BE(0));

  test('the client is told to go; what it has begun until it has heard is served; then both ends close', () => {
    const table = openTable();
    table.client.send(headers(1, request('/pass/A')), headers(3, request('/handle/B')));
    table.client.take();
    table.core.shutdown();
    const told = table.client.take();
    expect(typesOf(told)).toEqual([GOAWAY, PING]);
    expect(numbersOf(told)).toEqual([last]);
    expect(told[1]!.flags).toBe(0);
    table.backend.take();
    // It was on its way.
    table.client.send(headers(5, request('/pass/C'), true));
    expect(typesOf(table.backend.take())).toEqual([HEADERS]);
    table.client.send(frame(PING, 1, 0, Buffer.from('12345678')));
    expect(table.client.take()).toEqual([]);
    table.client.send(shutdownPing);
    expect(numbersOf(table.client.take())).toEqual([5]);
    table.client.send(headers(7, request('/pass/D'), true));
    expect(table.backend.take()).toEqual([]);
    for (const id of [1, 5]) table.backend.send(headers(id, RESPONSE), headers(id, OK, true));
    expect(table.client.ended).toBe(false);
    table.locals[0]!.send(settings(), headers(3, RESPONSE), headers(3, OK, true));
    expect(table.client.ended).toBe(true);
    expect(table.backend.ended).toBe(true);
    expect(table.locals[0]!.ended).toBe(true);
  });

  test('an idle connection closes once the client has acknowledged the PING', () => {
    const table = openTable();
    table.core.shutdown();
    table.core.shutdown();
    expect(typesOf(table.client.take())).toEqual([GOAWAY, PING]);
    expect(table.client.ended).toBe(false);
    table.client.send(shutdownPing);
    expect(numbersOf(table.client.take())).toEqual([0]);
    expect(table.client.ended).toBe(true);
  });

  test('a client that does not answer the PING gets the last stream id after a timeout', () => {
    vi.useFakeTimers();
    const table = openTable();
    table.client.send(headers(1, request('/pass/A')));
    table.core.shutdown();
    table.client.take();
    vi.advanceTimersByTime(1000);
    expect(numbersOf(table.client.take())).toEqual([1]);
    table.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(table.client.ended).toBe(true);
  });

  test('a connection that is only about to open is served first: its client would take a close for a failure', () => {
    const table = createTable();
    table.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
    table.core.shutdown();
    expect(table.client.ended).toBe(false);
    table.backend.send(settings());
    expect(typesOf(table.client.take())).toEqual([SETTINGS, GOAWAY, PING]);
    table.client.send(shutdownPing);
    expect(numbersOf(table.client.take())).toEqual([1]);
    table.backend.send(headers(1, RESPONSE), headers(1, OK, true));
    expect(typesOf(table.client.take())).toEqual([HEADERS, HEADERS]);
    expect(table.client.ended).toBe(true);
  });

  test('a watch ends with UNAVAILABLE when nothing else runs', () => {
    const table = openTable();
    table.client.send(headers(1, request('/pass/Watch'), true), headers(3, request('/pass/A'), true));
    table.backend.send(headers(1, RESPONSE), data(1, message(Buffer.from('event'))));
    table.core.shutdown();
    table.client.send(shutdownPing);
    table.client.take();
    expect(table.client.ended).toBe(false);
    table.backend.send(headers(3, RESPONSE), headers(3, OK, true));
    const frames = table.client.take();
    expect(frames.map(({ id }) => id)).toEqual([3, 3, 1]);
    expect(fieldsOf(frames[2]!)).toMatchObject({
      'grpc-status': '14',
      'grpc-message': 'cri-resize-shim is being restarted: call again',
    });
    expect(table.client.ended).toBe(true);
    expect(table.events).toContain('/pass/Watch pass unavailable 14');
  });
});

describe('the client disconnects', () => {
  test('both servers are notified', () => {
    const table = openTable();
    table.client.send(headers(1, request('/pass/A')), headers(3, request('/handle/B')));
    table.client.events.closed(undefined);
    const local = table.locals[0]!;
    expect(local.take().at(-1)).toEqual({ type: RST_STREAM, flags: 0, id: 3, payload: u32(ErrorCode.CANCEL) });
    expect(local.ended).toBe(true);
    expect(table.backend.ended).toBe(true);
    expect(table.client.destroyed).toBe(true);
    expect(table.events).toEqual(['/pass/A pass cancelled undefined', '/handle/B handle cancelled undefined']);
  });

  test('a peer that does not close its end is cut off', () => {
    vi.useFakeTimers();
    const table = openTable();
    table.core.shutdown();
    table.client.send(frame(PING, 1, 0, Buffer.from('shutdown')));
    expect([table.client.ended, table.client.destroyed]).toEqual([true, false]);
    vi.advanceTimersByTime(5000);
    expect([table.client.destroyed, table.backend.destroyed]).toEqual([true, true]);
  });
});

describe('the local server', () => {
  test('is connected when needed, and again after it was lost', () => {
    const table = openTable();
    table.client.send(headers(1, request('/pass/A'), true));
    expect(table.locals).toHaveLength(0);
    table.client.send(headers(3, request('/handle/B')));
    table.client.send(headers(5, request('/handle/C')));
    expect(table.locals).toHaveLength(1);
    table.locals[0]!.send(settings(), goaway(5, 0));
    table.client.send(headers(7, request('/handle/D')));
    expect(table.locals).toHaveLength(2);
    expect(typesOf(table.locals[1]!.take())).toEqual([SETTINGS, HEADERS]);
    // The old one still answers; what it leaves unanswered is not lost without a word.
    table.locals[0]!.send(headers(3, RESPONSE), headers(3, OK, true));
    table.client.take();
    table.locals[0]!.events.closed(undefined);
    const [answer, ...others] = table.client.take();
    expect(others).toEqual([]);
    expect([answer!.id, fieldsOf(answer!)['grpc-status']]).toEqual([5, '14']);
    expect(table.client.ended).toBe(false);
  });

  test('that breaks the protocol loses only its own connection', () => {
    const table = openTable();
    table.client.send(headers(1, request('/handle/A')), headers(3, request('/pass/B')));
    table.client.take();
    table.locals[0]!.send(frame(SETTINGS, 0, 0, Buffer.alloc(5)));
    expect(table.locals[0]!.destroyed).toBe(true);
    expect(fieldsOf(table.client.take()[0]!)['grpc-status']).toBe('14');
    table.backend.send(headers(3, RESPONSE));
    expect(typesOf(table.client.take())).toEqual([HEADERS]);
  });

  test('uses no client window that the backend relies on', () => {
    const table = openTable();
    table.client.send(headers(1, request('/handle/A'), true), headers(3, request('/pass/B'), true));
    const local = table.locals[0]!;
    local.take();
    local.send(settings(), headers(1, RESPONSE), data(1, Buffer.alloc(1000)), headers(1, OK, true));
    // It gets its own window back at once.
    expect(local.take().find(({ type, id }) => type === WINDOW_UPDATE && id === 0)!.payload).toEqual(u32(1000));
    // The backend does not know, and sends as much as it may: the last 1000 bytes wait.
    const sent = Buffer.alloc(65_535, 'b');
    table.backend.send(headers(3, RESPONSE));
    for (let at = 0; at < sent.length; at += 16_384) table.backend.send(data(3, sent.subarray(at, at + 16_384)));
    table.client.send(windowUpdate(3, 100_000));
    table.backend.take();
    table.client.take();
    // Of what the client gives back the backend gets nothing until it may send as much as fits.
    table.client.send(windowUpdate(0, 400));
    expect(dataOf(table.client.take(), 3)).toHaveLength(400);
    expect(table.backend.take()).toEqual([]);
    table.client.send(windowUpdate(0, 1000));
    expect(dataOf(table.client.take(), 3)).toHaveLength(600);
    expect(table.backend.take()).toEqual([{ type: WINDOW_UPDATE, flags: 0, id: 0, payload: u32(400) }]);
  });
});

describe('slow readers', () => {
  test('whoever is not read is not read for: bytes wait in the sockets, not here', () => {
    const table = openTable();
    table.client.send(headers(1, request('/handle/A')));
    table.client.backlog = 70_000;
    table.backend.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect([table.backend.paused, table.locals[0]!.paused, table.client.paused]).toEqual([true, true, false]);
    table.client.backlog = 2_000_000;
    table.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect(table.client.paused).toBe(true);
    table.client.backlog = 0;
    table.client.events.drained();
    expect([table.backend.paused, table.locals[0]!.paused, table.client.paused]).toEqual([false, false, false]);
    table.backend.backlog = 70_000;
    table.client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    expect([table.client.paused, table.backend.paused]).toEqual([true, false]);
    table.backend.backlog = 0;
    table.backend.events.drained();
    expect(table.client.paused).toBe(false);
  });

  test('a client that exceeds the window of a handled request is reset', () => {
    const table = openTable();
    table.client.send(headers(1, request('/handle/A')));
    table.locals[0]!.send(settings([4, 0]));
    for (let sent = 0; sent < 9; sent += 1) table.client.send(data(1, Buffer.alloc(16_384)));
    const reset = table.client.take().find(({ type }) => type === RST_STREAM)!;
    expect([reset.id, reset.payload.readUInt32BE(0)]).toEqual([1, ErrorCode.FLOW_CONTROL_ERROR]);
  });
});

describe('a burst', () => {
  test('is one write for each side, unchanged', () => {
    const table = openTable();
    table.client.send(headers(1, request('/pass/A'), true), headers(3, request('/pass/B'), true));
    table.client.writes = 0;
    table.backend.writes = 0;
    const burst = [headers(1, RESPONSE), data(1, Buffer.alloc(9000, 1)), headers(1, OK, true), headers(3, RESPONSE)];
    table.backend.send(...burst);
    expect([table.client.writes, table.backend.writes]).toEqual([1, 0]);
    expect(table.client.takeBytes()).toEqual(Buffer.concat(burst));
  });
});

describe('errors during error handling', () => {
  test('a backend lost while the client’s SETTINGS are invalid ends one connection, not the process', () => {
    const table = openTable();
    table.client.send(headers(1, request('/handle/A')), windowUpdate(1, 2 ** 31 - 1 - 65_535), settings([4, 70_000]));
    table.client.take();
    table.backend.events.closed(undefined);
    const seen = table.client.take().find(({ type }) => type === GOAWAY)!;
    expect(seen.payload.readUInt32BE(4)).toBe(ErrorCode.FLOW_CONTROL_ERROR);
    expect(table.client.ended).toBe(true);
  });

  test('a route or an observer that throws ends one connection with INTERNAL_ERROR', () => {
    const table = openTable({
      route: () => {
        throw new Error('a mistake');
      },
    });
    table.client.send(headers(1, request('/pass/A')));
    const seen = table.client.take().find(({ type }) => type === GOAWAY)!;
    expect(seen.payload.readUInt32BE(4)).toBe(ErrorCode.INTERNAL_ERROR);
    expect(table.events).toEqual([`error client ${ErrorCode.INTERNAL_ERROR} a mistake`]);
    expect([table.client.ended, table.backend.ended]).toEqual([true, true]);
  });
});
