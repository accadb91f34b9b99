import { once } from 'node:events';
import * as grpc from '@grpc/grpc-js';
import { afterEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { Scene, raw, unary } from '../../support/http2/real.ts';

const ROUTES = ['pass', 'handle', 'amend', 'each'];
const APPENDED = Buffer.from('+amended');

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
/** Never answers. Reports when it is called and when it is cancelled. */
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

/** Messages of 16 MiB stay as they are: with more they were too long for their client. */
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
      // The first message of a response to amend waits for a second message or the end, a handled request for its last
      // message.
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
      Array.from({ length: 1000 }, (_, index) => unary(client, `/${route}.S/echo.unary`, Buffer.from(`call ${index}`))),
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
