import { status } from '@grpc/grpc-js';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Channel } from '../../../src/runtime/channel/channel.ts';
import { isServiceError } from '../../../src/core/grpc.ts';
import { LIMIT, PATH, ServedChannel, answer, failureOf } from '../../support/channel/served-channel.ts';
import {
  OK,
  PING,
  RESPONSE,
  RST_STREAM,
  data,
  dataOf,
  frame,
  goaway,
  headers,
  message,
  resetsOf,
  rst,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const subject = new ServedChannel();
const { call, started } = subject;

afterEach(() => void vi.useRealTimers());

describe('the end of a call', () => {
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
      // The server has processed it: it may have an effect.
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
