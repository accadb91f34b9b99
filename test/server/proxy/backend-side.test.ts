import { afterEach, describe, expect, test, vi } from 'vitest';
import { ErrorCode } from '../../../src/http2/errors.ts';
import {
  DATA,
  data,
  dataOf,
  fieldsOf,
  frame,
  GOAWAY,
  goaway,
  goawayOf,
  HEADERS,
  headers,
  OK,
  openProxy,
  PADDED,
  PING,
  PREFACE,
  PUSH_PROMISE,
  RESPONSE,
  RST_STREAM,
  request,
  rst,
  SETTINGS,
  settings,
  startProxy,
  typesOf,
  u32,
  windowUpdate,
  withStream,
} from '../../support/http2/wire.ts';

describe('outages of the backend', () => {
  afterEach(() => void vi.useRealTimers());

  describe('an unavailable backend', () => {
    test('without a backend, calls end with UNAVAILABLE and the cause, and GOAWAY makes the client reconnect', () => {
      const proxy = startProxy();
      proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true), headers(3, request('/handle/B')));
      proxy.backend.events.closed(new Error('connect ENOENT /run/x.sock'));
      const seen = proxy.client.take();
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
      expect(proxy.client.ended).toBe(true);
      expect(proxy.locals).toEqual([]);
    });

    test('without a backend, a later call ends with UNAVAILABLE too, and a client that never calls is disconnected', () => {
      vi.useFakeTimers();
      const proxy = startProxy();
      proxy.backend.events.closed(new Error('connect ECONNREFUSED'));
      expect(typesOf(proxy.client.take())).toEqual([SETTINGS]);
      proxy.client.send(PREFACE, settings());
      expect(proxy.client.ended).toBe(false);
      proxy.client.send(headers(1, request('/pass/A'), true));
      expect(typesOf(proxy.client.take())).toEqual([SETTINGS, GOAWAY, HEADERS]);
      expect(proxy.client.ended).toBe(true);

      const idle = startProxy();
      idle.backend.events.closed(new Error('connect ECONNREFUSED'));
      idle.client.send(PREFACE, settings());
      vi.advanceTimersByTime(60_000);
      expect(idle.client.ended).toBe(true);
      expect(idle.client.destroyed).toBe(true);
    });

    test('a status message with characters other than ASCII is percent-encoded', () => {
      const proxy = startProxy();
      proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
      proxy.backend.events.closed(new Error('100% für nichts\n'));
      const answer = proxy.client.take().find(({ type }) => type === HEADERS)!;
      expect(fieldsOf(answer)['grpc-message']).toBe('backend unavailable: 100%25 f%C3%BCr nichts%0A');
    });

    test('a backend that does not speak HTTP/2 counts as unavailable', () => {
      const proxy = startProxy();
      proxy.client.send(PREFACE, settings(), headers(1, request('/pass/A'), true));
      proxy.backend.send(Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'));
      expect(fieldsOf(proxy.client.take().find(({ type }) => type === HEADERS)!)['grpc-status']).toBe('14');
      expect(proxy.backend.ended).toBe(true);
    });
  });

  describe('loss of the backend', () => {
    test('when the backend is lost, forwarded calls end with UNAVAILABLE, local calls continue, then the client is disconnected', () => {
      const proxy = openProxy();
      proxy.client.send(
        headers(1, request('/pass/unanswered')),
        headers(3, request('/pass/streaming')),
        headers(5, request('/handle/B')),
        headers(7, request('/pass/done'), true),
      );
      proxy.backend.send(
        headers(3, RESPONSE),
        data(3, Buffer.from('half')),
        headers(7, RESPONSE),
        headers(7, OK, true),
      );
      proxy.client.take();
      proxy.backend.events.closed(new Error('read ECONNRESET'));
      const seen = proxy.client.take();
      expect(seen.map(({ type, id }) => [type, id])).toEqual([
        [HEADERS, 1],
        [HEADERS, 3],
        [GOAWAY, 0],
      ]);
      expect(fieldsOf(seen[0]!)).toMatchObject({ ':status': '200', 'grpc-status': '14' });
      expect(fieldsOf(seen[1]!)).toEqual({
        'grpc-status': '14',
        'grpc-message': 'error reading from server: read ECONNRESET',
      });
      expect(seen[2]!.payload.readUInt32BE(0)).toBe(7);
      expect(proxy.client.ended).toBe(false);
      // The proxy acknowledges SETTINGS and returns windows in place of the lost backend.
      proxy.client.send(settings([4, 100_000]), data(5, Buffer.alloc(10)), data(3, Buffer.alloc(20)));
      const [ack, ...updates] = proxy.client.take();
      expect([ack!.type, ack!.flags]).toEqual([SETTINGS, 1]);
      expect(updates.filter(({ id }) => id === 0).map(({ payload }) => payload.readUInt32BE(0))).toEqual([30]);
      // A call that crosses the GOAWAY gets no answer, so the client may send it again.
      proxy.client.send(headers(9, request('/pass/late'), true), headers(11, request('/handle/late'), true));
      const local = proxy.locals[0]!;
      local.send(settings(), headers(5, RESPONSE), data(5, Buffer.from('done')), headers(5, OK, true));
      expect(dataOf(proxy.client.take(), 5).toString()).toBe('done');
      expect(proxy.client.ended).toBe(true);
      expect(proxy.events).toEqual([
        '/pass/done pass answered 0',
        'error reading from server: read ECONNRESET',
        '/pass/unanswered pass unavailable 14',
        '/pass/streaming pass unavailable 14',
        '/handle/B handle answered 0',
      ]);
    });

    test("complete responses of a lost backend still arrive, as the client's windows allow", () => {
      const proxy = openProxy({}, [4, 10]);
      proxy.client.send(headers(1, request('/handle/A'), true), headers(3, request('/pass/B'), true));
      proxy.locals[0]!.send(settings(), headers(1, RESPONSE), data(1, Buffer.alloc(10)));
      // The backend fills the window that it was granted. The local server has used a part of it.
      for (let round = 0; round < 6553; round += 1) proxy.client.send(windowUpdate(3, 10));
      proxy.backend.send(headers(3, RESPONSE), ...Array.from({ length: 4 }, () => data(3, Buffer.alloc(16_383))));
      proxy.backend.send(headers(3, OK, true));
      expect(dataOf(proxy.client.take(), 3)).toHaveLength(65_525);
      proxy.backend.events.closed(undefined);
      expect(typesOf(proxy.client.take())).toEqual([GOAWAY]);
      proxy.client.send(windowUpdate(0, 100));
      expect(dataOf(proxy.client.take(), 3)).toHaveLength(7);
      expect(proxy.events).toContain('/pass/B pass answered 0');
      expect(proxy.client.ended).toBe(false);
      proxy.client.send(rst(1, 8));
      expect(proxy.client.ended).toBe(true);
    });

    test('an incomplete header block of a lost backend is not forwarded', () => {
      const proxy = openProxy();
      proxy.client.send(headers(1, request('/pass/A'), true));
      proxy.backend.send(frame(HEADERS, 0, 1, headers(1, RESPONSE).subarray(9)));
      proxy.backend.events.closed(undefined);
      expect(fieldsOf(proxy.client.take()[0]!)).toMatchObject({ ':status': '200', 'grpc-status': '14' });
    });
  });

  describe('GOAWAY', () => {
    test('GOAWAY from the backend is forwarded with a last stream id that includes running local streams', () => {
      const proxy = openProxy();
      proxy.client.send(
        headers(1, request('/pass/A')),
        headers(3, request('/pass/B')),
        headers(5, request('/handle/C')),
      );
      proxy.client.take();
      proxy.backend.send(goaway(1, ErrorCode.NO_ERROR));
      const seen = proxy.client.take();
      // Stream 3 is below the announced id but not served, so it is refused by RST_STREAM.
      expect(seen.map(({ type, id, payload }) => [type, id, payload.readUInt32BE(0)])).toEqual([
        [RST_STREAM, 3, ErrorCode.REFUSED_STREAM],
        [GOAWAY, 0, 5],
      ]);
      proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
      proxy.client.send(data(1, Buffer.alloc(0), true));
      proxy.backend.events.closed(undefined);
      expect(proxy.client.ended).toBe(false);
      proxy.locals[0]!.send(settings(), headers(5, RESPONSE), headers(5, OK, true));
      expect(proxy.client.take().filter(({ id }) => id === 5)).toHaveLength(2);
      expect(proxy.client.ended).toBe(true);
    });

    test('GOAWAY from a backend that stops gracefully is forwarded twice, and streams in between are served', () => {
      const proxy = openProxy();
      proxy.backend.send(goaway(2 ** 31 - 1, 0), frame(PING, 0, 0, Buffer.alloc(8)));
      expect(proxy.client.take().map(({ payload }) => payload.readUInt32BE(0))).toEqual([2 ** 31 - 1]);
      proxy.client.send(headers(1, request('/pass/A'), true));
      expect(typesOf(proxy.backend.take())).toEqual([PING, HEADERS]);
      proxy.backend.send(goaway(1, 0));
      proxy.client.send(headers(3, request('/pass/B'), true));
      expect(proxy.backend.take()).toEqual([]);
      proxy.backend.send(headers(1, RESPONSE), headers(1, OK, true));
      expect(proxy.client.take().map(({ type, id }) => [type, id])).toEqual([
        [GOAWAY, 0],
        [HEADERS, 1],
        [HEADERS, 1],
      ]);
      proxy.backend.events.closed(undefined);
      expect(proxy.client.ended).toBe(true);
    });
  });
});

describe('a protocol violation of the backend ends its connection, and its calls with UNAVAILABLE', () => {
  test.each<[what: string, code: number, bytes: Buffer]>([
    ['a frame on an idle stream', ErrorCode.PROTOCOL_ERROR, headers(5, RESPONSE)],
    ['a frame on a stream that the backend opens', ErrorCode.PROTOCOL_ERROR, headers(2, RESPONSE)],
    ['PUSH_PROMISE', ErrorCode.PROTOCOL_ERROR, frame(PUSH_PROMISE, 4, 1, u32(2))],
    [
      'more DATA than the connection window',
      ErrorCode.FLOW_CONTROL_ERROR,
      Buffer.concat(Array.from({ length: 5 }, () => data(1, Buffer.alloc(16_384)))),
    ],
    ['a frame longer than allowed', ErrorCode.FRAME_SIZE_ERROR, data(1, Buffer.alloc(16_385))],
    ['padding longer than DATA', ErrorCode.PROTOCOL_ERROR, frame(DATA, PADDED, 1, Buffer.of(5, 1, 2))],
  ])('ends the backend connection, and its calls with UNAVAILABLE, after %s', (_, code, bytes) => {
    const proxy = withStream();
    proxy.backend.send(bytes);
    expect(goawayOf(proxy.backend.take())?.code).toBe(code);
    expect(proxy.backend.ended).toBe(true);
    expect(goawayOf(proxy.client.take())).toEqual({ last: 1, code: ErrorCode.NO_ERROR });
    expect(proxy.events).toContain('/pass/A pass unavailable 14');
    expect(proxy.client.ended).toBe(true);
  });

  test.each(['pass', 'amend', 'each'])(
    'ends the backend connection after more DATA than the window of a stream (%s)',
    (route) => {
      const proxy = openProxy({}, [4, 1000]);
      proxy.client.send(headers(1, request(`/${route}/A`)));
      proxy.backend.send(headers(1, RESPONSE), data(1, Buffer.alloc(1000)));
      expect(goawayOf(proxy.backend.take())).toBeUndefined();
      proxy.client.send(headers(3, request(`/${route}/B`)));
      proxy.backend.take();
      proxy.backend.send(headers(3, RESPONSE), data(3, Buffer.alloc(1001)));
      expect(goawayOf(proxy.backend.take())?.code).toBe(ErrorCode.FLOW_CONTROL_ERROR);
      expect(proxy.events).toContain(`/${route}/B ${route === 'each' ? 'amend-each' : route} unavailable 14`);
    },
  );
});
