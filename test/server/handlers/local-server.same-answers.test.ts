import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import * as http2 from 'node:http2';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code, Metadata } from '../../../src/core/grpc.ts';
import { noCounters } from '../../../src/core/observe/counters.ts';
import { createLog } from '../../../src/core/observe/log.ts';
import { createLocalServer } from '../../../src/server/handlers/local-server.ts';
import type { LocalCalls } from '../../../src/server/local-calls.ts';
import { type ServedConnection, serveConnection } from '../../../src/server/proxy/serve.ts';
import type { RawUnaryHandler } from '../../../src/server/unary/call.ts';
import {
  DATA,
  data,
  END_STREAM,
  fieldsOf,
  HEADERS,
  headers,
  message,
  PREFACE,
  parseFrames,
  RST_STREAM,
  request,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

// The proxy serves plain calls itself. For the same bytes, a client gets the same answer as from a grpc-js server.
const WAYS = ['proxy', 'grpc-js'] as const;
type Way = (typeof WAYS)[number];

const handlers = new Map<string, RawUnaryHandler>([
  [
    '/s/Echo',
    ({ path, request: asked, metadata, client }) =>
      Promise.resolve(Buffer.from(JSON.stringify([path, asked.toString(), metadata.pairs(), client?.pid]))),
  ],
  ['/s/Empty', () => Promise.resolve(Buffer.alloc(0))],
  ['/s/Large', () => Promise.resolve(Buffer.alloc(100_000, 'l'))],
  [
    '/s/Fail',
    () => {
      const context = { pod: 'ns/pöd', found: 'a\nb' };
      return Promise.reject(new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, '10 % of "nöthing"\n<\ud800>', context));
    },
  ],
  ['/s/Internal', () => Promise.reject(new TypeError('secret'))],
  [
    '/s/Backend',
    () => {
      const metadata = new Metadata();
      metadata.add('x-many', 'a');
      metadata.add('x-many', 'b');
      metadata.add('x-bytes-bin', 'AAE=');
      metadata.add('content-type', 'application/grpc');
      return Promise.reject(Object.assign(new Error('failed'), { code: 77, details: 'odd ü', metadata }));
    },
  ],
  [
    '/s/Hang',
    ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('ended')))),
  ],
]);

const folder = mkdtempSync(join(tmpdir(), 'same-'));
const backend = http2.createServer();
const fronts = new Map<Way, net.Server>();
const connections: ServedConnection[] = [];
let local: LocalCalls;
let lines: { way: Way; line: Record<string, unknown> }[] = [];
let way: Way = 'proxy';
let handled = 0;

beforeAll(async () => {
  const write = (line: string): void => void lines.push({ way, line: JSON.parse(line) as Record<string, unknown> });
  const log = createLog({ level: 'info', destination: { write } });
  local = createLocalServer(handlers, { log, counters: noCounters });
  backend.listen(join(folder, 'backend'));
  await once(backend, 'listening');
  for (const name of WAYS) {
    const front = net.createServer((socket) => {
      const connection = serveConnection(socket, {
        connectBackend: (onread) => net.connect({ path: join(folder, 'backend'), onread }),
        connectLocal: () => local.connect(42),
        interception: { route: () => 'handle', amend: () => undefined, amendMessage: () => undefined },
        ...(name === 'proxy' && {
          handle: (call, respond) => {
            handled += 1;
            local.handle(call, respond, 42);
          },
        }),
      });
      connections.push(connection);
    });
    fronts.set(name, front);
    front.listen(join(folder, name));
    await once(front, 'listening');
  }
});
beforeEach(() => {
  lines = [];
  handled = 0;
});
afterAll(() => {
  for (const connection of connections) connection.destroy();
  for (const front of fronts.values()) front.close();
  local.close();
  backend.close();
  rmSync(folder, { recursive: true });
});

/** The answer to a client on stream 1, in an order and encoding that do not depend on the server. */
interface Answer {
  readonly headers: Record<string, string>[];
  readonly body: string;
  readonly reset: number | undefined;
}

/** Sends bytes on a new connection. Resolves with the answer on stream 1, or when the connection ends. */
async function answerOf(to: Way, bytes: Buffer): Promise<Answer> {
  way = to;
  const socket = net.connect(join(folder, to));
  let pending = Buffer.alloc(0);
  const answer = {
    headers: [] as Record<string, string>[],
    body: Buffer.alloc(0),
    reset: undefined as number | undefined,
  };
  socket.write(PREFACE);
  // Windows that the largest answer fits into.
  socket.write(Buffer.concat([settings([4, 200_000]), windowUpdate(0, 200_000)]));
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    const { frames, rest } = parseFrames(Buffer.concat([pending, chunk]));
    pending = Buffer.from(rest);
    for (const frame of frames) {
      if (frame.type === SETTINGS && frame.flags === 0) socket.write(Buffer.concat([SETTINGS_ACK, bytes]));
      if (frame.id !== 1) continue;
      if (frame.type === HEADERS) answer.headers.push(comparable(fieldsOf(frame)));
      if (frame.type === DATA) answer.body = Buffer.concat([answer.body, frame.payload]);
      if (frame.type === RST_STREAM) answer.reset = frame.payload.readUInt32BE(0);
      if (frame.type === RST_STREAM || (frame.type !== SETTINGS && (frame.flags & END_STREAM) !== 0)) socket.end();
    }
  }
  return { ...answer, body: answer.body.toString('latin1') };
}

/** Without the date, which only grpc-js adds. */
function comparable(all: Record<string, string>): Record<string, string> {
  const fields = Object.fromEntries(Object.entries(all).filter(([name]) => name !== 'date'));
  const text = fields['grpc-message'];
  return text === undefined ? fields : { ...fields, 'grpc-message': decodeURIComponent(text) };
}

const open = (path: string, extra: { name: string; value: string }[] = []): Buffer => headers(1, request(path, extra));
const HELLO = message(Buffer.from('hello'));
const whole = (path: string, extra: { name: string; value: string }[] = []): Buffer =>
  Buffer.concat([open(path, extra), data(1, HELLO, true)]);
const changed = (name: string, value: string | undefined): Buffer =>
  Buffer.concat([
    headers(
      1,
      request('/s/Echo').flatMap((field) =>
        field.name !== name ? [field] : value === undefined ? [] : [{ name, value }],
      ),
    ),
    data(1, HELLO, true),
  ]);
const parts = (...of: Buffer[]): Buffer =>
  Buffer.concat([open('/s/Echo'), ...of.map((part, at) => data(1, part, at === of.length - 1))]);

/** The last column reports whether the proxy itself serves the call. */
const cases: [string, Buffer, status: string | undefined, served: boolean][] = [
  [
    'a call with metadata',
    whole('/s/Echo', [
      { name: 'x-user', value: 'a, b' },
      { name: 'x-b-bin', value: 'AAE' },
      { name: 'user-agent', value: 'grpc-go/1.80.0' },
    ]),
    '0',
    true,
  ],
  [
    'a call with all headers of gRPC',
    whole('/s/Echo', [
      { name: 'grpc-timeout', value: '600S' },
      { name: 'grpc-accept-encoding', value: 'gzip' },
      { name: 'grpc-encoding', value: 'identity' },
      { name: 'accept-encoding', value: 'gzip' },
    ]),
    '0',
    true,
  ],
  ['an empty message', Buffer.concat([open('/s/Echo'), data(1, message(Buffer.alloc(0)), true)]), '0', true],
  ['an empty response', whole('/s/Empty'), '0', true],
  ['a response of several frames', whole('/s/Large'), '0', true],
  ['a request in parts of one byte', parts(...[...HELLO].map((byte) => Buffer.of(byte))), '0', true],
  ['a request that ends with an empty frame', parts(HELLO, Buffer.alloc(0)), '0', true],
  [
    'a request that ends with trailers',
    Buffer.concat([open('/s/Echo'), data(1, HELLO), headers(1, [{ name: 'x-end', value: '1' }], true)]),
    '0',
    true,
  ],
  ['an error of the shim', whole('/s/Fail'), '5', true],
  ['an internal error', whole('/s/Internal'), '13', true],
  ['an error of the backend', whole('/s/Backend'), '77', true],
  ['a deadline that passes', whole('/s/Hang', [{ name: 'grpc-timeout', value: '500m' }]), '4', true],
  [
    'a deadline that passes before the request is complete',
    Buffer.concat([open('/s/Echo', [{ name: 'grpc-timeout', value: '30m' }]), data(1, HELLO.subarray(0, 7))]),
    '4',
    false,
  ],
  ['no DATA', headers(1, request('/s/Echo'), true), '12', false],
  ['an empty DATA frame', parts(Buffer.alloc(0)), '12', false],
  [
    'trailers instead of DATA',
    Buffer.concat([open('/s/Echo'), headers(1, [{ name: 'x-end', value: '1' }], true)]),
    '12',
    false,
  ],
  ['two messages', parts(Buffer.concat([HELLO, HELLO])), '12', false],
  ['two messages in two frames', parts(HELLO, HELLO), '12', false],
  ['half a prefix', parts(HELLO.subarray(0, 3)), '12', false],
  ['a message that is shorter than its prefix says', parts(HELLO.subarray(0, 7)), '12', false],
  ['a message that is compressed without an encoding', parts(message(gzipSync('hello'), true)), '0', false],
  [
    'a compressed message',
    Buffer.concat([
      open('/s/Echo', [{ name: 'grpc-encoding', value: 'gzip' }]),
      data(1, message(gzipSync('hello'), true), true),
    ]),
    '0',
    false,
  ],
  [
    'an unknown encoding',
    Buffer.concat([
      open('/s/Echo', [{ name: 'grpc-encoding', value: 'br' }]),
      data(1, message(Buffer.from('x'), true), true),
    ]),
    '12',
    false,
  ],
  ['a malformed timeout', whole('/s/Echo', [{ name: 'grpc-timeout', value: 'soon' }]), '13', false],
  ['a timeout without a unit', whole('/s/Echo', [{ name: 'grpc-timeout', value: '10' }]), '13', false],
  ['a path without a handler', whole('/s/Unknown'), '12', true],
  ['GET', changed(':method', 'GET'), '0', false],
  ['no content type', changed('content-type', undefined), undefined, false],
  ['another content type', changed('content-type', 'text/html'), undefined, false],
  ['no scheme', changed(':scheme', undefined), undefined, false],
  ['no authority', changed(':authority', undefined), undefined, false],
  ['te gzip', changed('te', 'gzip'), undefined, false],
  ['a header of HTTP/1', whole('/s/Echo', [{ name: 'connection', value: 'close' }]), undefined, false],
  ['a header with capitals', whole('/s/Echo', [{ name: 'X-User', value: 'a' }]), undefined, false],
  [
    'a repeated header',
    whole('/s/Echo', [
      { name: 'x-user', value: 'a' },
      { name: 'x-user', value: 'b' },
    ]),
    '0',
    false,
  ],
  [
    'a header that the shim uses itself',
    whole('/s/Echo', [{ name: 'x-cri-resize-shim-peer', value: '1' }]),
    '0',
    false,
  ],
];

test.each(cases)('the proxy and grpc-js answer identically: %s', async (_, bytes, status, served) => {
  const proxy = await answerOf('proxy', bytes);
  expect(handled).toBe(served ? 1 : 0);
  const js = await answerOf('grpc-js', bytes);
  expect(proxy).toEqual(js);
  expect(proxy.headers.at(-1)?.['grpc-status']).toBe(status);
  const logged = (of: Way): unknown[] =>
    lines
      .filter((each) => each.way === of)
      .map(({ line: { msg, code, method, level } }) => ({ msg, code, method, level }));
  await expect.poll(() => logged('proxy'), LONG_WAIT).toEqual(logged('grpc-js'));
});
