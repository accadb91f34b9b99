import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import * as http2 from 'node:http2';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { type ServedConnection, serveConnection } from '../../../src/server/proxy/serve.ts';
import { localPair } from '../../../src/server/proxy/pair-transport.ts';
import {
  DATA,
  END_STREAM,
  HEADERS,
  OK,
  PREFACE,
  RESPONSE,
  SETTINGS_ACK,
  data,
  headers,
  message,
  parseFrames,
  request,
  routeOf,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

/** Tests the proxy on real sockets, between peers that are not gRPC libraries. */

const folder = mkdtempSync(join(tmpdir(), 'proxy-'));
const paths = { front: join(folder, 'front.sock'), backend: join(folder, 'backend.sock') };
const APPENDED = Buffer.from('+amended');
const cleanUps: (() => void)[] = [];
let connections: ServedConnection[] = [];

async function front(local: http2.Http2Server): Promise<void> {
  const server = net.createServer((socket) => {
    connections.push(
      serveConnection(socket, {
        connectBackend: (onread) => net.connect({ path: paths.backend, onread }),
        connectLocal: () => {
          const [server, client] = localPair();
          local.emit('connection', server);
          return client;
        },
        interception: {
          route: routeOf,
          amend: ({ response }) => Promise.resolve(Buffer.concat([response, APPENDED])),
          amendMessage: () => undefined,
        },
      }),
    );
  });
  server.listen(paths.front);
  cleanUps.push(() => server.close());
  await once(server, 'listening');
}

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) cleanUp();
  for (const connection of connections) connection.destroy();
  await Promise.all(connections.map(({ closed }) => closed));
  connections = [];
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function echoServer(options: http2.ServerOptions): http2.Http2Server {
  const server = http2.createServer(options);
  server.on('stream', (stream, sent) => {
    stream.on('error', () => undefined);
    if (sent[':path']!.endsWith('/reset')) {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
      stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
      return;
    }
    stream.respond(
      { ':status': 200, 'content-type': 'application/grpc', 'set-cookie': ['a', 'b'] },
      { waitForTrailers: true },
    );
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'x-long': 'y'.repeat(20_000) }));
    stream.pipe(stream);
  });
  return server;
}

interface Reply {
  readonly headers: http2.IncomingHttpHeaders;
  readonly trailers: http2.IncomingHttpHeaders;
  readonly body: Buffer;
}

async function call(session: http2.ClientHttp2Session, path: string, body: Buffer): Promise<Reply> {
  const stream = session.request(
    {
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      'x-long': 'z'.repeat(20_000),
    },
    { endStream: false },
  );
  const seen: { headers: http2.IncomingHttpHeaders; trailers: http2.IncomingHttpHeaders } = {
    headers: {},
    trailers: {},
  };
  stream.on('response', (got: http2.IncomingHttpHeaders) => (seen.headers = got));
  stream.on('trailers', (got: http2.IncomingHttpHeaders) => (seen.trailers = got));
  stream.end(body);
  const received = await buffer(stream);
  return { ...seen, body: received };
}

describe('the proxy between peers of node:http2', () => {
  test.each<[string, http2.ServerOptions & http2.ClientSessionOptions]>([
    ['without padding', {}],
    [
      'with padding, larger frames and small windows',
      {
        paddingStrategy: http2.constants.PADDING_STRATEGY_MAX,
        settings: { maxFrameSize: 40_000, initialWindowSize: 5000 },
      },
    ],
    ['with a header table of its own size', { settings: { headerTableSize: 100, enablePush: false } }],
    [
      'without a header table',
      { maxDeflateDynamicTableSize: 0, settings: { headerTableSize: 0, initialWindowSize: 1_000_000 } },
    ],
  ])('forwards calls on all routes between peers of node:http2 %s', async (_name, options) => {
    const backend = echoServer(options);
    const local = echoServer(options);
    backend.listen(paths.backend);
    await once(backend, 'listening');
    cleanUps.push(() => backend.close());
    await front(local);
    const session = http2.connect('http://localhost', { ...options, createConnection: () => net.connect(paths.front) });
    cleanUps.push(() => session.destroy());
    await once(session, 'connect');
    const body = message(Buffer.alloc(300_000, 'body'));
    const routes = ['/pass/a', '/handle/b', '/amend/c'];
    const calls = Array.from({ length: 12 }, (_, index) => routes[index % 3]!);
    const replies = await Promise.all(calls.map((path) => call(session, path, body)));
    replies.forEach((reply, index) => {
      expect(reply.headers['set-cookie']).toEqual(['a', 'b']);
      expect(reply.trailers).toMatchObject({ 'grpc-status': '0', 'x-long': 'y'.repeat(20_000) });
      const amended = message(Buffer.concat([body.subarray(5), APPENDED]));
      expect([index, reply.body.length]).toEqual([index, calls[index] === '/amend/c' ? amended.length : body.length]);
      expect(reply.body.equals(calls[index] === '/amend/c' ? amended : body)).toBe(true);
    });
    // Settings that change, a ping, and resets with an error code of the server.
    session.settings({ initialWindowSize: 100, headerTableSize: 50 });
    const ping = new Promise<Buffer>((resolve, reject) => {
      session.ping(Buffer.from('12345678'), (error, _ms, got) => (error === null ? resolve(got) : reject(error)));
    });
    expect(String(await ping)).toBe('12345678');
    const again = await Promise.all(routes.map((path) => call(session, path, message(Buffer.alloc(5000, 'x')))));
    expect(again.map((reply) => reply.body.length)).toEqual([5005, 5005, 5005 + APPENDED.length]);
    for (const path of ['/pass/reset', '/handle/reset', '/amend/reset']) {
      const stream = session.request({ ':method': 'POST', ':path': path }, { endStream: false });
      stream.resume();
      await once(stream, 'error').catch((error: unknown) => error);
      expect(stream.rstCode).toBe(http2.constants.NGHTTP2_INTERNAL_ERROR);
    }
    expect(connections[0]!.activeStreams).toBe(0);
  });
});

test('a connection counts as used when it opens, so that it does not end for another one before its first call', async () => {
  const server = net.createServer().listen(paths.backend);
  cleanUps.push(() => server.close());
  await once(server, 'listening');
  await front(http2.createServer());
  const before = performance.now();
  const client = net.connect(paths.front);
  cleanUps.push(() => client.destroy());
  await once(server, 'connection');
  expect(connections[0]!.lastUsed).toBeGreaterThanOrEqual(before);
});

describe('a client that does not read', () => {
  test('a client that does not read pauses the backend without using memory, and receives everything when it reads again', async () => {
    const TOTAL = 64 * MiB;
    let sent = 0;
    const backend = net.createServer((socket) => {
      socket.on('error', () => undefined);
      socket.write(Buffer.concat([settings(), SETTINGS_ACK]));
      const chunk = data(1, Buffer.alloc(16_384, 'd'));
      const more = (): void => {
        while (sent < TOTAL) {
          sent += 16_384;
          const last = sent === TOTAL;
          if (!socket.write(last ? data(1, chunk.subarray(9), true) : chunk)) break;
        }
      };
      // The backend answers when it has received preface, SETTINGS, windows and request.
      let received = 0;
      socket.on('data', (bytes) => {
        const before = received;
        received += bytes.length;
        if (before < 100 && received >= 100) {
          socket.write(headers(1, RESPONSE));
          more();
        }
      });
      socket.on('drain', more);
    });
    backend.listen(paths.backend);
    cleanUps.push(() => backend.close());
    await once(backend, 'listening');
    await front(http2.createServer());
    const client = net.connect(paths.front);
    cleanUps.push(() => client.destroy());
    await once(client, 'connect');
    const windows = [settings([4, 2 ** 31 - 1]), windowUpdate(0, 2 ** 31 - 1 - 65_535)];
    client.write(Buffer.concat([PREFACE, ...windows, headers(1, request('/pass/flood'), true)]));
    client.pause();
    // The backend is paused when nothing has moved for a thousand turns of the event loop.
    for (let quiet = 0, before = -1; quiet < 1000; ) {
      await turn();
      quiet = sent === before && sent > 0 ? quiet + 1 : 0;
      before = sent;
    }
    // Sent bytes are in socket buffers and in a few chunks of the proxy.
    expect(sent).toBeLessThan(4 * MiB);
    let received = 0;
    client.on('data', (bytes) => (received += bytes.length));
    client.resume();
    while (received < TOTAL) await once(client, 'data');
    expect(sent).toBe(TOTAL);
  });

  test('a client that reads late receives the whole answer of a connection that has closed in the meantime', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    cleanUps.push(() => {
      vi.useRealTimers();
    });
    let sent = 0;
    const backend = net.createServer((socket) => {
      socket.on('error', () => undefined);
      socket.write(Buffer.concat([settings(), SETTINGS_ACK]));
      /** Answers with what the sockets take and a little more. */
      const answer = async (): Promise<void> => {
        socket.write(headers(1, RESPONSE));
        while (connections[0]?.unsent === 0) {
          socket.write(data(1, Buffer.alloc(4096, 'd')));
          sent += 1;
          await turn();
        }
        socket.write(headers(1, OK, true));
      };
      let received = 0;
      socket.on('data', (bytes) => {
        const before = received;
        received += bytes.length;
        if (before < 100 && received >= 100) void answer();
      });
    });
    backend.listen(paths.backend);
    cleanUps.push(() => backend.close());
    await once(backend, 'listening');
    await front(http2.createServer());
    const client = net.connect(paths.front);
    cleanUps.push(() => client.destroy());
    await once(client, 'connect');
    client.pause();
    const windows = [settings([4, 2 ** 31 - 1]), windowUpdate(0, 2 ** 31 - 1 - 65_535)];
    client.write(Buffer.concat([PREFACE, ...windows, headers(1, request('/pass/a'), true)]));
    while (connections[0]?.calls !== 1) await turn();
    connections[0].end();
    vi.advanceTimersByTime(20_000);
    const { frames } = parseFrames(await buffer(client));
    expect(frames.filter(({ type }) => type === DATA).length).toBe(sent);
    expect(frames.filter(({ type, flags }) => type === HEADERS && (flags & END_STREAM) !== 0).length).toBe(1);
  });
});
