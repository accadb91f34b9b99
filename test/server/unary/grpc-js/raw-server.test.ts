import * as http2 from 'node:http2';
import { duplexPair } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { status as grpcStatus, type ServerUnaryCall, type sendUnaryData } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { noCounters } from '../../../../src/core/observe/counters.ts';
import { noLog } from '../../../../src/core/observe/interfaces.ts';
import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { createRawServer, rawMessage } from '../../../../src/server/unary/grpc-js/raw-server.ts';
import { serveUnary } from '../../../../src/server/unary/grpc-js/serve.ts';
import { GRPC_LIMITS } from '../../../../src/server/unary/server-budget.ts';
import { LONG_WAIT } from '../../../support/long-wait.ts';

/** Small, so that one session of node:http2, which ends itself with more data, can use up the budget. */
const LIMITS = { requestLimit: 2 * MiB, requestBytes: 2.5 * MiB, shortRequestBytes: MiB / 4, runningCalls: 1024 };
const status: Readonly<Record<'OK' | 'RESOURCE_EXHAUSTED' | 'INVALID_ARGUMENT', number>> = grpcStatus;

/** Prefixes a message as gRPC does. */
function framed(message: Buffer, compressed = false): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt8(compressed ? 1 : 0, 0);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

let refused: string[];
let session: http2.ClientHttp2Session;
let raw: ReturnType<typeof createRawServer>;
/** Ends the calls of /s/Wait. */
let release: () => void;

/** Connects to the server. */
function connect(): http2.ClientHttp2Session {
  const [ours, theirs] = duplexPair();
  raw.accept(ours);
  return http2.connect('http://localhost', {
    createConnection: () => theirs,
    settings: { initialWindowSize: MiB },
  });
}

beforeEach(() => {
  refused = [];
  raw = createRawServer({ ...noCounters, refused: (budget) => refused.push(budget) }, LIMITS);
  const released = new Promise<void>((resolve) => (release = resolve));
  const serve = (path: string, wait: boolean): void => {
    const handler = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveUnary(
        async ({ request }) => {
          if (wait) await released;
          return Buffer.from(String(request.length));
        },
        call,
        respond,
        { log: noLog, budget: raw.budget, ended: () => undefined },
      );
    raw.server.register(path, handler, rawMessage, rawMessage, 'unary');
  };
  serve('/s/Length', false);
  serve('/s/Wait', true);
  session = connect();
});
afterEach(() => {
  release();
  session.destroy();
  raw.close();
});

/** Starts a call. */
function start(path: string, headers: http2.OutgoingHttpHeaders = {}, connection = session) {
  const stream = connection.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
    ...headers,
  });
  let body = Buffer.alloc(0);
  let code = -1;
  stream.on('data', (part: Buffer) => (body = Buffer.concat([body, part])));
  const read = (seen: http2.IncomingHttpHeaders): void => {
    if (seen['grpc-status'] !== undefined) code = Number(seen['grpc-status']);
  };
  stream
    .on('response', read)
    .on('trailers', read)
    .on('error', () => undefined);
  const outcome = new Promise<{ code: number; text: string }>((resolve) =>
    stream.once('close', () => resolve({ code, text: body.subarray(5).toString() })),
  );
  return { stream, outcome };
}

const gzip = { 'grpc-encoding': 'gzip' };

describe('a compressed request', () => {
  test.each([
    ['compressed', framed(gzipSync(Buffer.alloc(100_000)), true)],
    ['not compressed, though the call has an encoding', framed(Buffer.alloc(100_000))],
  ])('a request of a call with an encoding is served: %s', async (_, request) => {
    const { stream, outcome } = start('/s/Length', gzip);
    stream.end(request);
    expect(await outcome).toEqual({ code: status.OK, text: '100000' });
  });

  /** Gzip data that states a size of 100 bytes. */
  function lying(): Buffer {
    const bytes = gzipSync(Buffer.alloc(16 * MiB));
    bytes.writeUInt32LE(100, bytes.length - 4);
    return bytes;
  }

  test.each([
    ['states', gzipSync(Buffer.alloc(16 * MiB))],
    ['hides', lying()],
  ])(
    'H4: a compressed request that %s a decompressed size above the limit ends with RESOURCE_EXHAUSTED and is counted',
    async (_, bomb) => {
      const { stream, outcome } = start('/s/Length', gzip);
      stream.end(framed(bomb, true));
      expect((await outcome).code).toBe(status.RESOURCE_EXHAUSTED);
      expect(refused).toEqual(['decompressed']);
    },
  );

  test('a damaged compressed request ends with INVALID_ARGUMENT', async () => {
    const { stream, outcome } = start('/s/Length', gzip);
    stream.end(framed(Buffer.from([0x1f, 0x8b, 1, 2, 3]), true));
    expect((await outcome).code).toBe(status.INVALID_ARGUMENT);
  });
});

describe('requests of all clients', () => {
  test('long requests leave room for short ones', async () => {
    const connections = [connect(), connect()];
    const call = (path: string, bytes: number, connection = session): Promise<{ code: number; text: string }> => {
      const { stream, outcome } = start(path, {}, connection);
      stream.end(framed(Buffer.alloc(bytes)));
      return outcome;
    };
    // The call runs, and holds its bytes until it ends.
    const first = call('/s/Wait', 2 * MiB, connections[0]);
    await vi.waitFor(() => expect(raw.budget.bytes).toBe(2 * MiB), LONG_WAIT);
    // With this call, only 50 KB would remain.
    const second = call('/s/Wait', 474_000, connections[1]);
    await vi.waitFor(
      () => expect(refused.length === 1 || raw.budget.bytes === 2 * MiB + 474_000).toBe(true),
      LONG_WAIT,
    );
    expect(await call('/s/Length', 60_000)).toEqual({ code: status.OK, text: '60000' });
    expect((await second).code).toBe(status.RESOURCE_EXHAUSTED);
    release();
    expect((await first).code).toBe(status.OK);
    expect(refused).toEqual(['requests']);
    for (const connection of connections) connection.destroy();
  });

  test('H4: above the budget for incomplete requests, further ones are rejected, and memory is freed when they end', async () => {
    const part = framed(Buffer.alloc(2 * MiB)).subarray(0, MiB);
    const calls = Array.from({ length: 6 }, () => start('/s/Length'));
    for (const { stream } of calls) stream.write(part);
    // Two calls fit. Each other call is refused when its next part does not fit.
    const codes: number[] = [];
    for (const { outcome } of calls) void outcome.then(({ code }) => codes.push(code));
    await vi.waitFor(() => expect(codes).toHaveLength(4), LONG_WAIT);
    expect(codes).toEqual(Array(4).fill(status.RESOURCE_EXHAUSTED));
    expect(refused).toEqual(Array(4).fill('requests'));
    await vi.waitFor(() => expect(raw.budget.bytes).toBeGreaterThanOrEqual(2 * MiB), LONG_WAIT);
    expect(raw.budget.bytes).toBeLessThanOrEqual(LIMITS.requestBytes);
    for (const { stream } of calls) stream.destroy();
    await vi.waitFor(() => expect(raw.budget.bytes).toBe(0), LONG_WAIT);
    const { stream, outcome } = start('/s/Length');
    stream.end(framed(Buffer.alloc(10)));
    expect(await outcome).toEqual({ code: status.OK, text: '10' });
  });

  test('H4: requests in very small parts count more than their bytes', async () => {
    const { stream } = start('/s/Length');
    stream.write(framed(Buffer.alloc(1000)).subarray(0, 6));
    for (let at = 0; at < 100; at += 1) {
      stream.write(Buffer.alloc(1));
      await turn();
    }
    await vi.waitFor(() => expect(raw.budget.bytes).toBeGreaterThan(50 * GRPC_LIMITS.partOverhead), LONG_WAIT);
    stream.destroy();
    await vi.waitFor(() => expect(raw.budget.bytes).toBe(0), LONG_WAIT);
  });

  test('the number of requests that run at the same time is limited', async () => {
    // One more than a connection may have streams.
    const other = connect();
    const calls = Array.from({ length: LIMITS.runningCalls + 1 }, (_, at) =>
      start('/s/Wait', {}, at % 2 === 0 ? session : other),
    );
    for (const { stream } of calls) stream.end(framed(Buffer.alloc(1)));
    const first = await Promise.race(calls.map(({ outcome }) => outcome));
    expect(first.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(refused).toEqual(['handled_calls']);
    release();
    const codes = (await Promise.all(calls.map(({ outcome }) => outcome))).map(({ code }) => code);
    expect(codes.filter((code) => code === status.OK)).toHaveLength(LIMITS.runningCalls);
    other.destroy();
  });

  test('cancelled requests keep their bytes until their handlers have ended', async () => {
    const request = framed(Buffer.alloc(1000));
    const calls = Array.from({ length: 10 }, () => start('/s/Wait'));
    for (const { stream } of calls) stream.end(request);
    await vi.waitFor(() => expect(raw.budget.bytes).toBe(10 * 1000), LONG_WAIT);
    for (const { stream } of calls) stream.close(http2.constants.NGHTTP2_CANCEL);
    await Promise.all(calls.map(({ outcome }) => outcome));
    // The server has seen the resets when it answers a later call.
    const { stream, outcome } = start('/s/Length');
    stream.end(framed(Buffer.alloc(10)));
    expect((await outcome).code).toBe(status.OK);
    expect(raw.budget.bytes).toBe(10 * 1000);
    release();
    await vi.waitFor(() => expect(raw.budget.bytes).toBe(0), LONG_WAIT);
  });
});
