import { EventEmitter, once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import type { ServerUnaryCall, ServiceError, sendUnaryData } from '@grpc/grpc-js';
import { Client, credentials, Metadata, Server, ServerCredentials, status } from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { createCounters } from '../../../src/core/observe/counters.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { createLog } from '../../../src/core/observe/log.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { Backend } from '../../../src/runtime/backend.ts';
import { createLocalServer } from '../../../src/server/handlers/local-server.ts';
import type { LocalCalls } from '../../../src/server/local-calls.ts';
import { serveConnection } from '../../../src/server/proxy/serve.ts';
import type { RawUnaryHandler } from '../../../src/server/unary/call.ts';
import { inBackend, onBehalfOf } from '../../../src/server/unary/call.ts';
import { codeFor } from '../../../src/server/unary/grpc-js/serve.ts';
import {
  data,
  headers,
  message,
  PREFACE,
  request,
  SETTINGS_ACK,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { collectUncaught } from '../../support/uncaught.ts';

/** The handler of the intercepted call. Each test sets one. */
let handle: RawUnaryHandler;

describe('handlers', () => {
  const identity = (bytes: Buffer): Buffer => bytes;
  const limits = { 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 };
  const secret = 'PASSWORD=hunter2';

  let folder: string;
  let local: LocalCalls;
  let backendServer: Server;
  let backend: Backend;
  /** The server of the call: the proxy itself, or the grpc-js server behind it. */
  const WAYS = ['the proxy', 'grpc-js'] as const;
  let clients: Record<(typeof WAYS)[number], Client>;
  let client: Client;
  let lines: Record<string, unknown>[];
  let counters = createCounters();
  const closing: (() => unknown)[] = [];
  /** The handler of the fake backend, with the part of grpc-js's types that the tests use. Each test sets one. */
  let answer: (call: AnswerCall, respond: (error: object | null, response?: Buffer) => void) => void;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'local-'));
    const log = createLog({
      level: 'debug',
      destination: { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
    });
    const unary = new Map<string, RawUnaryHandler>([['/s/Call', (call, trace) => handle(call, trace)]]);
    local = createLocalServer(unary, {
      log,
      counters: { ...counters, interceptedCall: (...of) => counters.interceptedCall(...of) },
    });
    const bridge = createServer((socket) => {
      const connection = local.connect();
      socket.pipe(connection).pipe(socket);
      socket.on('error', () => connection.destroy());
      closing.push(() => socket.destroy());
    });
    bridge.listen(join(folder, 'l.sock'));
    await once(bridge, 'listening');
    const front = createServer((socket) => {
      const connection = serveConnection(socket, {
        connectBackend: (onread) => connect({ path: join(folder, 'b.sock'), onread }),
        connectLocal: () => local.connect(),
        handle: (served, respond) => local.handle(served, respond),
        interception: { route: () => 'handle', amend: () => undefined, amendMessage: () => undefined },
      });
      closing.push(() => connection.destroy());
    });
    front.listen(join(folder, 'p.sock'));
    await once(front, 'listening');
    const clientOf = (name: string): Client =>
      new Client(`unix:${folder}/${name}`, credentials.createInsecure(), limits);
    clients = { 'the proxy': clientOf('p.sock'), 'grpc-js': clientOf('l.sock') };

    backendServer = new Server(limits);
    const serve = (served: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      answer(served, (error, response) => respond(error, response));
    backendServer.register('/s/Call', serve, identity, identity, 'unary');
    await new Promise((resolve, reject) => {
      backendServer.bindAsync(`unix:${folder}/b.sock`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve(undefined) : reject(error),
      );
    });
    backend = new Backend(`unix://${folder}/b.sock`);
    closing.push(
      () => bridge.close(),
      () => front.close(),
    );
  });

  beforeEach(() => {
    lines = [];
    counters = createCounters();
  });

  afterAll(() => {
    for (const each of Object.values(clients)) each.close();
    backend.close();
    backendServer.forceShutdown();
    local.close();
    for (const close of closing) close();
    rmSync(folder, { recursive: true });
  });

  interface AnswerCall {
    readonly metadata: Metadata;
    getDeadline(): Date | number;
    on(event: 'cancelled', listener: () => void): unknown;
  }

  interface Outcome {
    response?: Buffer;
    error?: ServiceError;
  }
  function call(
    request = Buffer.from('q'),
    metadata = new Metadata(),
    deadline = Date.now() + 120_000,
  ): Promise<Outcome> {
    return new Promise((resolve) => {
      client.makeUnaryRequest('/s/Call', identity, identity, request, metadata, { deadline }, (error, response) =>
        resolve(error !== null ? { error } : { response: response ?? Buffer.alloc(0) }),
      );
    });
  }
  const logged = async (): Promise<Record<string, unknown>> => {
    while (!lines.some(({ msg }) => msg === 'intercepted call')) await new Promise(setImmediate);
    return lines.find(({ msg }) => msg === 'intercepted call') ?? {};
  };
  const throwing =
    (error: Error): RawUnaryHandler =>
    () =>
      Promise.reject(error);
  const forward: RawUnaryHandler = (served, trace) =>
    inBackend(trace, () => backend.call('/s/Call', served.request, onBehalfOf(served)));

  /** Decodes grpc-status-details-bin as any gRPC client does: with the .proto files and a protobuf library. */
  function decodeDetails(error: ServiceError | undefined): object {
    const proto = (name: string): string =>
      readFileSync(new URL(`../../../proto/google/rpc/${name}.proto`, import.meta.url), 'utf8').replace(
        /^import .*$/m,
        '',
      );
    const root = new protobuf.Root();
    const any = 'syntax = "proto3"; package google.protobuf; message Any { string type_url = 1; bytes value = 2; }';
    for (const source of [any, proto('status'), proto('error_info')]) protobuf.parse(source, root, { keepCase: true });
    const [bytes, ...more] = error?.metadata.get('grpc-status-details-bin') ?? [];
    expect(more).toEqual([]);
    return root
      .lookupType('google.rpc.Status')
      .decode(bytes as Buffer)
      .toJSON();
  }

  describe.each(WAYS)('calls through %s', (way) => {
    beforeEach(() => void (client = clients[way]));

    describe('a response of a handler', () => {
      test('a response of a handler is returned unchanged, and the call is logged once, with ids and times', async () => {
        handle = async (served, trace) => {
          trace.fields['pod'] = 'p1';
          const response = await inBackend(trace, async () => {
            const until = performance.now() + 30;
            while (performance.now() < until) await new Promise(setImmediate);
            return served.request;
          });
          trace.fields['container'] = 'c1';
          return response;
        };
        const bytes = Buffer.from([0, 255, 128, 10]);
        const start = performance.now();
        expect((await call(bytes)).response).toEqual(bytes);
        const line = await logged();
        const elapsed = performance.now() - start;
        expect(line).toEqual({
          level: 'info',
          time: expect.any(String) as unknown,
          pod: 'p1',
          container: 'c1',
          method: '/s/Call',
          code: 'OK',
          shimMs: expect.any(Number) as unknown,
          backendMs: expect.any(Number) as unknown,
          msg: 'intercepted call',
        });
        expect(line['backendMs']).toBeGreaterThanOrEqual(30);
        // The time of the backend does not count as the shim's. Both are rounded.
        expect(Number(line['shimMs']) + Number(line['backendMs'])).toBeLessThanOrEqual(elapsed + 1);
        expect(lines).toHaveLength(1);
        expect(counters.snapshot().interceptedCalls).toMatchObject([{ method: '/s/Call', code: 'OK', count: 1 }]);
      });

      test('accepts requests and responses of 16 MiB, and rejects a larger request', async () => {
        handle = (served) => Promise.resolve(served.request);
        const bytes = Buffer.alloc(16 * MiB - 64, 7);
        expect((await call(bytes)).response?.equals(bytes)).toBe(true);
        expect((await call(Buffer.alloc(16 * MiB + 1))).error?.code).toBe(status.RESOURCE_EXHAUSTED);
      });

      test('a request and a response may be empty', async () => {
        handle = () => Promise.resolve(Buffer.alloc(0));
        expect((await call(Buffer.alloc(0))).response).toEqual(Buffer.alloc(0));
      });
    });

    describe('a ShimError', () => {
      test('a ShimError is returned with its code, its message, and an ErrorInfo with reason and context', async () => {
        handle = throwing(
          new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_IN_USE, 'volume cache: 10 bytes used – 5 asked', {
            pod: 'ns/p',
            volume: 'cache',
            asked: '5',
            found: '10',
          }),
        );
        const { error } = await call();
        expect([error?.code, error?.details]).toEqual([9, 'volume cache: 10 bytes used – 5 asked']);
        expect(decodeDetails(error)).toEqual({
          code: 9,
          message: 'volume cache: 10 bytes used – 5 asked',
          details: [
            {
              '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
              reason: 'VOLUME_IN_USE',
              domain: 'cri-resize-shim.io',
              metadata: { pod: 'ns/p', volume: 'cache', asked: '5', found: '10' },
            },
          ],
        });
        expect(await logged()).toMatchObject({ code: 'FAILED_PRECONDITION', level: 'info' });
        expect(lines).toHaveLength(1);
      });

      test('a ShimError may have any text in its message, and lone surrogates are replaced', async () => {
        handle = throwing(
          new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, 'a\nb %41 \ud800 ü', { found: '\udfff' }),
        );
        const { error } = await call();
        expect([error?.code, error?.details]).toEqual([3, 'a\nb %41 \ufffd ü']);
        expect(decodeDetails(error)).toMatchObject({ message: 'a\nb %41 \ufffd ü' });
      });

      test('a ShimError without context is returned with an ErrorInfo without metadata', async () => {
        handle = throwing(new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_VOLUME, 'no such volume'));
        expect(decodeDetails((await call()).error)).toEqual({
          code: 5,
          message: 'no such volume',
          details: [
            {
              '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
              reason: 'UNKNOWN_VOLUME',
              domain: 'cri-resize-shim.io',
            },
          ],
        });
      });
    });

    describe('an internal error', () => {
      test.each([
        ['an Error', new TypeError(`cannot read ${secret}`)],
        ['a thrown string', secret],
        ['a system error', Object.assign(new Error(`EIO: ${secret}`), { code: 'EIO' })],
        ['undefined', undefined],
      ])('%s is returned as INTERNAL, and its content reaches neither client nor log', async (_, fault) => {
        handle = throwing(fault as Error);
        const { error } = await call();
        expect([error?.code, error?.details]).toEqual([13, 'internal error in cri-resize-shim; see its log']);
        expect(decodeDetails(error)).toMatchObject({ details: [{ reason: 'INTERNAL' }] });
        expect(await logged()).toMatchObject({ code: 'INTERNAL' });
        expect(lines).toHaveLength(2);
        expect(JSON.stringify(lines) + JSON.stringify(error)).not.toContain('hunter2');
      });

      test('an internal error is logged with its stack', async () => {
        handle = () => {
          throw new TypeError('synchronous');
        };
        expect((await call()).error?.code).toBe(13);
        const fault = lines.find(({ level }) => level === 'error');
        expect(fault).toMatchObject({ error: 'TypeError', method: '/s/Call' });
        expect(String(fault?.['stack'])).toContain('local-server.test.ts');
      });
    });

    describe('the answer of the backend', () => {
      test('an error of the backend is forwarded with code, message and trailers', async () => {
        const details = Buffer.from([8, 9, 18, 0, 255]);
        answer = (_, respond) => {
          const metadata = new Metadata();
          metadata.set('grpc-status-details-bin', details);
          metadata.set('x-one', 'a');
          metadata.add('x-many', 'a');
          metadata.add('x-many', 'b');
          metadata.add('x-bytes-bin', Buffer.from([0, 1]));
          metadata.add('x-bytes-bin', Buffer.from([2]));
          respond({ code: 5, details: 'container "x": nöt found %', metadata });
        };
        handle = forward;
        const { error } = await call();
        expect([error?.code, error?.details]).toEqual([5, 'container "x": nöt found %']);
        expect(error?.metadata.get('grpc-status-details-bin')).toEqual([details]);
        expect(error?.metadata.get('x-one')).toEqual(['a']);
        // grpc-js receives repeated text keys joined.
        expect(error?.metadata.get('x-many').join(', ')).toBe('a, b');
        expect(error?.metadata.get('x-bytes-bin')).toEqual([Buffer.from([0, 1]), Buffer.from([2])]);
        expect(error?.metadata.get('content-type')).toEqual(['application/grpc+proto']);
        expect(await logged()).toMatchObject({ code: 'NOT_FOUND' });
        expect(lines).toHaveLength(1);
      });

      test('an error of the backend keeps a code that is unknown to gRPC', async () => {
        answer = (_, respond) => respond({ code: 77, details: 'odd' });
        handle = forward;
        expect((await call()).error).toMatchObject({ code: 77, details: 'odd' });
      });

      test('a call to the backend has the metadata and the deadline of the client', async () => {
        const seen: { user: unknown; deadline: number }[] = [];
        answer = (served, respond) => {
          seen.push({ user: served.metadata.get('x-user'), deadline: Number(served.getDeadline()) });
          respond(null, Buffer.from('r'));
        };
        handle = forward;
        const metadata = new Metadata();
        metadata.set('x-user', 'kubelet');
        const deadline = Date.now() + 3_600_000;
        expect((await call(Buffer.from('q'), metadata, deadline)).response?.toString()).toBe('r');
        expect(seen[0]?.user).toEqual(['kubelet']);
        expect(Math.abs((seen[0]?.deadline ?? 0) - deadline)).toBeLessThan(120_000);
      });
    });

    describe('a call that the client ends', () => {
      afterEach(() => void vi.useRealTimers());

      const hanging = (): { arrived: Promise<unknown>; cancelled: Promise<unknown> } => {
        const events = new EventEmitter();
        answer = (served) => {
          served.on('cancelled', () => events.emit('cancelled'));
          events.emit('arrived');
        };
        handle = forward;
        return { arrived: once(events, 'arrived'), cancelled: once(events, 'cancelled') };
      };

      test('a call that the client cancels is cancelled at the backend and logged as CANCELLED', async () => {
        const { arrived, cancelled } = hanging();
        const outcome = new Promise<ServiceError | null>((resolve) => {
          const running = client.makeUnaryRequest('/s/Call', identity, identity, Buffer.from('q'), (error) =>
            resolve(error),
          );
          void arrived.then(() => running.cancel());
        });
        expect((await outcome)?.code).toBe(status.CANCELLED);
        await cancelled;
        expect(await logged()).toMatchObject({ code: 'CANCELLED' });
        expect(lines).toHaveLength(1);
      });

      test('a call whose deadline has passed is cancelled at the backend and ends with DEADLINE_EXCEEDED', async () => {
        const { arrived, cancelled } = hanging();
        vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
        const outcome = call(Buffer.from('q'), new Metadata(), Date.now() + 300);
        await arrived;
        vi.advanceTimersByTime(300);
        expect((await outcome).error?.code).toBe(status.DEADLINE_EXCEEDED);
        await cancelled;
        // The shim counts the deadline from the arrival of the call. On a busy machine the client cancels before that.
        expect(['DEADLINE_EXCEEDED', 'CANCELLED']).toContain((await logged())['code']);
      });

      test.each([
        [
          'cancelled after its deadline',
          { cancelled: true, getDeadline: () => Date.now() - 1 },
          status.DEADLINE_EXCEEDED,
        ],
        [
          'cancelled before its deadline',
          { cancelled: true, getDeadline: () => Date.now() + 60_000 },
          status.CANCELLED,
        ],
        ['answered after its deadline', { cancelled: false, getDeadline: () => Date.now() - 1 }, status.NOT_FOUND],
      ])('returns the code to log for a call that is %s', (_, ended, code) => {
        expect(codeFor(ended, status.NOT_FOUND)).toBe(code);
      });
    });

    test('a call to a path without a handler is rejected with UNIMPLEMENTED', async () => {
      const error = await new Promise<ServiceError | null>((resolve) => {
        client.makeUnaryRequest('/s/Other', identity, identity, Buffer.alloc(0), (reason) => resolve(reason));
      });
      expect(error?.code).toBe(status.UNIMPLEMENTED);
    });
  });
});

describe('clients that disconnect', () => {
  const CALLS = 10;
  const LATE = 4;
  /** A header of compressed calls, which grpc-js serves. */
  const COMPRESSED = [{ name: 'grpc-encoding', value: 'gzip' }];

  /** Clients of a shim that serves this handler connect to it. */
  let socketPath: string;
  /** Codes of calls that have ended. */
  let ended: number[];
  /** The proxy's ends of connections to the server. */
  let halves: Duplex[];
  /** Errors that would have ended the process. */
  let uncaught: unknown[];

  beforeEach(async () => {
    const folder = mkdtempSync(join(tmpdir(), 'disconnect-'));
    socketPath = join(folder, 'shim.sock');
    const backend = createServer((socket) => {
      socket.on('error', () => undefined).resume();
      socket.write(Buffer.concat([settings(), SETTINGS_ACK]));
    }).listen(join(folder, 'backend.sock'));
    ended = [];
    halves = [];
    const counters = { ...createCounters(), interceptedCall: (_: string, code: number) => void ended.push(code) };
    const unary = new Map<string, RawUnaryHandler>([['/s/Call', (call, trace) => handle(call, trace)]]);
    const local = createLocalServer(unary, { log: noLog, counters });
    const front = createServer((socket) => {
      serveConnection(socket, {
        connectBackend: (onread) => connect({ path: join(folder, 'backend.sock'), onread }),
        connectLocal: () => {
          const half = local.connect();
          halves.push(half);
          return half;
        },
        interception: { route: () => 'handle', amend: () => undefined, amendMessage: () => undefined },
      });
    }).listen(socketPath);
    await Promise.all([once(backend, 'listening'), once(front, 'listening')]);
    uncaught = collectUncaught();
    onTestFinished(() => {
      local.close();
      front.close();
      backend.close();
      rmSync(folder, { recursive: true });
    });
  });

  /** Connects with the largest windows. */
  async function connected(): Promise<Socket> {
    const client = connect(socketPath);
    onTestFinished(() => void client.destroy());
    await once(client, 'connect');
    client.write(Buffer.concat([PREFACE, settings([4, 2 ** 31 - 1]), windowUpdate(0, 2 ** 31 - 1 - 65_535)]));
    return client;
  }

  function call(client: Socket): void {
    for (let index = 0; index < CALLS; index += 1) {
      const id = 2 * index + 1;
      client.write(headers(id, request('/s/Call', COMPRESSED)));
      client.write(data(id, message(Buffer.from('request')), true));
    }
  }

  async function turns(count: number): Promise<void> {
    for (let index = 0; index < count; index += 1) await turn();
  }

  test.each([
    ['reads nothing', MiB],
    ['waits for its answers', 0],
  ])(
    'a client of compressed calls that %s and disconnects leaves no connection open and causes no uncaught error',
    async (_, answerSize) => {
      const waiting: (() => void)[] = [];
      let called = 0;
      handle = async () => {
        called += 1;
        // The first answers arrive after the client has disconnected, and the others fill all buffers on the way to it.
        if (called <= LATE) await new Promise<void>((resolve) => waiting.push(resolve));
        return Buffer.alloc(answerSize);
      };
      const client = await connected();
      client.pause();
      call(client);
      // The proxy stops reading when the client does not read.
      for (let quiet = 0, before = 0; quiet < 1000; before = called) {
        await turn();
        quiet = called === before && called > LATE ? quiet + 1 : 0;
      }
      client.destroy();
      await once(client, 'close');
      await turns(100);
      for (const answer of waiting) answer();
      while (ended.length < called) await turn();
      await turns(100);
      expect(uncaught).toEqual([]);
      expect(halves.map(({ destroyed }) => destroyed)).toEqual([true]);
      expect(ended).toEqual(expect.arrayContaining(Array.from({ length: LATE }, () => Code.CANCELLED)));
    },
  );
});
