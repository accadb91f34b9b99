import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import * as http2 from 'node:http2';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import * as grpc from '@grpc/grpc-js';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { localPair } from '../../../src/server/proxy/pair-transport.ts';
import type { ServedConnection } from '../../../src/server/proxy/serve.ts';
import { serveConnection } from '../../../src/server/proxy/serve.ts';
import { raw, Scene, unary } from '../../support/http2/real.ts';
import {
  DATA,
  data,
  END_STREAM,
  HEADERS,
  headers,
  message,
  OK,
  PREFACE,
  parseFrames,
  RESPONSE,
  request,
  routeOf,
  SETTINGS_ACK,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';

const APPENDED = Buffer.from('+amended');

describe('gRPC peers', () => {
  const ROUTES = ['pass', 'handle', 'amend', 'each'];

  type Unary = grpc.handleUnaryCall<Buffer, Buffer>;
  type ClientStream = grpc.handleClientStreamingCall<Buffer, Buffer>;
  type ServerStream = grpc.handleServerStreamingCall<Buffer, Buffer>;
  type Bidi = grpc.handleBidiStreamingCall<Buffer, Buffer>;

  const echo: Unary = (call, done) => done(null, call.request);

  const clientStream: ClientStream = (call, done) => {
    const parts: Buffer[] = [];
    call.on('data', (part: Buffer) => parts.push(part));
    call.on('end', () => done(null, Buffer.concat(parts)));
  };

  /** Repeats the request as many times as its first octet says. */
  const serverStream: ServerStream = (call) => {
    for (let count = call.request[0] ?? 0; count > 0; count -= 1) call.write(call.request);
    call.end();
  };

  const bidi: Bidi = (call) => {
    call.on('data', (part: Buffer) => call.write(part));
    call.on('end', () => call.end());
  };

  const called: Record<string, () => void> = {};
  const cancelled: Record<string, () => void> = {};
  /** A handler that never answers. Reports when it is called and when it is cancelled. */
  const hang =
    (name: string): Unary =>
    (call) => {
      call.sendMetadata(new grpc.Metadata());
      call.on('cancelled', () => cancelled[name]?.());
      called[name]?.();
    };

  const echoMetadata: Unary = (call, done) => {
    const headers = new grpc.Metadata();
    headers.set('seen', call.metadata.get('said').join('|'));
    headers.set('seen-bin', call.metadata.get('said-bin')[0] ?? Buffer.alloc(0));
    call.sendMetadata(headers);
    const trailers = new grpc.Metadata();
    trailers.add('twice', 'one');
    trailers.add('twice', 'two');
    trailers.set('last-bin', Buffer.of(0, 255, 128));
    if (call.request.length > 0) done(null, call.request, trailers);
    else done({ code: grpc.status.FAILED_PRECONDITION, details: 'too low: 5 % µ', metadata: trailers });
  };

  const methods = Object.fromEntries(
    ROUTES.flatMap((route): [string, grpc.UntypedHandleCall][] => [
      [`/${route}.S/echo.unary`, echo],
      [`/${route}.S/echoMetadata.unary`, echoMetadata],
      [`/${route}.S/hang.unary`, hang(route)],
      [`/${route}.S/clientStream`, clientStream],
      [`/${route}.S/serverStream`, serverStream],
      [`/${route}.S/bidi`, bidi],
    ]),
  );

  let scene: Scene | undefined;

  afterEach(async () => {
    await scene?.stop();
    scene = undefined;
  });

  async function open(): Promise<Scene> {
    scene = await new Scene(methods, {
      amend: ({ response }) => Promise.resolve(Buffer.concat([response, APPENDED])),
      amendMessage: (_, bytes) => appendedToMessage(bytes),
    }).start();
    return scene.startBackend();
  }

  /** Messages of 16 MiB are not amended, because the result would be too long for their client. */
  const appendedToMessage = (bytes: Uint8Array): Buffer | undefined =>
    bytes.length > MiB ? undefined : Buffer.concat([bytes, APPENDED]);

  const appendedTo = (route: string, bytes: Buffer): Buffer =>
    route === 'amend' || route === 'each' ? Buffer.concat([bytes, APPENDED]) : bytes;

  describe.each(ROUTES)('between gRPC peers, route %s', (route) => {
    test('a unary call is answered', async () => {
      const client = (await open()).client();
      const { message, status } = await unary(client, `/${route}.S/echo.unary`, Buffer.from('hello'));
      expect(status.code).toBe(grpc.status.OK);
      expect(String(message)).toBe(String(appendedTo(route, Buffer.from('hello'))));
    });

    test('request and response may have 16 MiB', async () => {
      const client = (await open()).client();
      const large = Buffer.alloc(16 * MiB - 5, 'large');
      // Requests above 1 MiB are not stored, so the response is not amended.
      const { message, error } = await unary(client, `/${route}.S/echo.unary`, large);
      expect(error).toBeNull();
      expect(message!.equals(large)).toBe(true);
    });

    test('metadata and trailers are forwarded, with repeated and binary keys', async () => {
      const client = (await open()).client();
      const metadata = new grpc.Metadata();
      metadata.add('said', 'a');
      metadata.add('said', 'b');
      metadata.set('said-bin', Buffer.of(0, 1, 254, 255));
      const good = await unary(client, `/${route}.S/echoMetadata.unary`, Buffer.from('x'), { metadata });
      const bad = await unary(client, `/${route}.S/echoMetadata.unary`, Buffer.alloc(0), { metadata });
      expect([good.status.code, bad.status.code]).toEqual([grpc.status.OK, grpc.status.FAILED_PRECONDITION]);
      expect(bad.status.details).toBe('too low: 5 % µ');
      // grpc-js itself joins repeated keys.
      for (const { metadata: headers, status } of [good, bad]) {
        expect(headers!.get('seen')).toEqual(['a, b']);
        expect(headers!.get('seen-bin')).toEqual([Buffer.of(0, 1, 254, 255)]);
        expect(status.metadata.get('twice').join(', ')).toBe('one, two');
        expect(status.metadata.get('last-bin')).toEqual([Buffer.of(0, 255, 128)]);
      }
    });

    test('a stream of requests is forwarded', async () => {
      const client = (await open()).client();
      const reply = await new Promise<Buffer | undefined>((resolve, reject) => {
        const call = client.makeClientStreamRequest(`/${route}.S/clientStream`, raw, raw, (error, message?: Buffer) =>
          error === null ? resolve(message) : reject(error),
        );
        for (let part = 0; part < 200; part += 1) call.write(Buffer.alloc(5000, part));
        call.end();
      });
      expect(reply!.length).toBe(route === 'each' ? 1_000_000 + APPENDED.length : 1_000_000);
      expect(reply!.subarray(5000 * 7, 5000 * 8).every((octet) => octet === 7)).toBe(true);
    });

    test('a stream of responses is forwarded', async () => {
      const client = (await open()).client();
      const sent = Buffer.alloc(30_000, 100);
      const call = client.makeServerStreamRequest(`/${route}.S/serverStream`, raw, raw, sent);
      let received = 0;
      for await (const part of call as AsyncIterable<Buffer>) {
        expect(part.equals(route === 'each' ? appendedTo(route, sent) : sent)).toBe(true);
        received += 1;
      }
      expect(received).toBe(100);
    });

    test('streams of requests and responses are forwarded concurrently', async () => {
      const client = (await open()).client();
      const call = client.makeBidiStreamRequest(`/${route}.S/bidi`, raw, raw);
      for (const part of ['one', 'two', 'three']) {
        call.write(Buffer.from(part));
        // The first message of a response to amend waits for a second message or the end, a handled request for its
        // last message.
        if (route === 'amend' || route === 'handle') continue;
        const [reply] = (await once(call, 'data')) as [Buffer];
        expect(String(reply)).toBe(String(appendedTo(route, Buffer.from(part))));
      }
      call.end();
      const received: Buffer[] = [];
      call.on('data', (part: Buffer) => received.push(part));
      const [status] = (await once(call, 'status')) as [grpc.StatusObject];
      expect(status.code).toBe(grpc.status.OK);
      if (route === 'amend' || route === 'handle') expect(received).toHaveLength(3);
    });

    test('a call ends at its deadline', async () => {
      const client = (await open()).client();
      const { error } = await unary(client, `/${route}.S/hang.unary`, Buffer.alloc(1), { deadline: 100 });
      expect(error!.code).toBe(grpc.status.DEADLINE_EXCEEDED);
    });

    test('a cancellation reaches the handler', async () => {
      const client = (await open()).client();
      const seen = new Promise<void>((resolve) => {
        cancelled[route] = resolve;
      });
      const { error } = await unary(client, `/${route}.S/hang.unary`, Buffer.alloc(1), {
        // Headers of an amended response wait for its message, so the handler reports that it has been called.
        onCall: (call) => {
          called[route] = () => call.cancel();
        },
      });
      expect(error!.code).toBe(grpc.status.CANCELLED);
      await seen;
    });

    test('1000 concurrent calls are answered on one connection', async () => {
      const opened = await open();
      const client = opened.client();
      const replies = await Promise.all(
        Array.from({ length: 1000 }, (_, index) =>
          unary(client, `/${route}.S/echo.unary`, Buffer.from(`call ${index}`)),
        ),
      );
      replies.forEach(({ message }, index) =>
        expect(String(message)).toBe(String(appendedTo(route, Buffer.from(`call ${index}`)))),
      );
      expect(opened.connections).toHaveLength(1);
      expect(opened.connections[0]!.activeStreams).toBe(0);
    });

    test('an unknown method is UNIMPLEMENTED', async () => {
      const client = (await open()).client();
      const { error } = await unary(client, `/${route}.S/nothing.unary`, Buffer.alloc(1));
      expect(error!.code).toBe(grpc.status.UNIMPLEMENTED);
    });
  });

  describe('between gRPC peers, all routes on one connection', () => {
    test('a client with small windows receives large responses', async () => {
      const client = (await open()).client({ 'grpc-node.flow_control_window': 65_535 });
      const large = Buffer.alloc(700_000, 'w');
      const replies = await Promise.all(
        Array.from({ length: 30 }, (_, index) => unary(client, `/${ROUTES[index % 3]!}.S/echo.unary`, large)),
      );
      replies.forEach(({ error, message }, index) => {
        expect(error).toBeNull();
        expect(message!.equals(appendedTo(ROUTES[index % 3]!, large))).toBe(true);
      });
    });

    test('calls fail with UNAVAILABLE without a backend, and work again when it is back', async () => {
      scene = await new Scene(methods).start();
      const client = scene.client();
      for (const route of ROUTES) {
        const { error } = await unary(client, `/${route}.S/echo.unary`, Buffer.from('a'));
        expect(error!.code).toBe(grpc.status.UNAVAILABLE);
        expect(error!.details).toContain('backend unavailable: connect ENOENT');
      }
      await scene.startBackend();
      for (const route of ROUTES)
        expect((await unary(client, `/${route}.S/echo.unary`, Buffer.from('b'))).status.code).toBe(grpc.status.OK);
    });

    test('a restart of the backend ends running calls with UNAVAILABLE; later calls succeed', async () => {
      const opened = await open();
      const client = opened.client();
      let begun!: () => void;
      const running = new Promise<void>((resolve) => {
        begun = resolve;
      });
      const hanging = unary(client, '/pass.S/hang.unary', Buffer.alloc(1), {
        onCall: (call) => call.on('metadata', begun),
      });
      await running;
      opened.killBackend();
      expect((await hanging).error!.code).toBe(grpc.status.UNAVAILABLE);
      await opened.connections[0]!.closed;
      await opened.startBackend();
      expect((await unary(client, '/pass.S/echo.unary', Buffer.from('b'))).status.code).toBe(grpc.status.OK);
      expect(opened.connections.length).toBeGreaterThan(1);
    });

    test('a shutdown lets a running stream complete, then closes the connection', async () => {
      const opened = await open();
      const client = opened.client();
      const call = client.makeBidiStreamRequest('/pass.S/bidi', raw, raw);
      call.write(Buffer.from('before'));
      expect(String((await once(call, 'data'))[0])).toBe('before');
      const [connection] = opened.connections;
      connection!.shutdown();
      expect(connection!.activeStreams).toBe(1);
      call.write(Buffer.from('after'));
      expect(String((await once(call, 'data'))[0])).toBe('after');
      // A new call opens another connection.
      expect((await unary(client, '/handle.S/echo.unary', Buffer.from('x'))).status.code).toBe(grpc.status.OK);
      expect(opened.connections).toHaveLength(2);
      call.end();
      call.resume();
      const [status] = (await once(call, 'status')) as [grpc.StatusObject];
      expect(status.code).toBe(grpc.status.OK);
      await connection!.closed;
    });
  });
});

describe('peers of node:http2', () => {
  /** Tests the proxy on real sockets, between peers that are not gRPC libraries. */

  const folder = mkdtempSync(join(tmpdir(), 'proxy-'));
  const paths = { front: join(folder, 'front.sock'), backend: join(folder, 'backend.sock') };
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
      const session = http2.connect('http://localhost', {
        ...options,
        createConnection: () => net.connect(paths.front),
      });
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

  test('a new connection counts as used when it opens, so that it is not closed in favor of another one before its first call', async () => {
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
        // The backend answers when preface, SETTINGS, windows and request have arrived.
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
        /** Sends an answer that is slightly larger than the buffers of the sockets. */
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
});
