import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Socket, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { Code } from '../../../src/core/grpc.ts';
import type { RawUnaryHandler } from '../../../src/server/unary/call.ts';
import { createCounters } from '../../../src/core/observe/counters.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { createLocalServer } from '../../../src/server/handlers/local-server.ts';
import { serveConnection } from '../../../src/server/proxy/serve.ts';
import { collectUncaught } from '../../support/uncaught.ts';
import {
  PREFACE,
  SETTINGS_ACK,
  data,
  headers,
  message,
  request,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';

const CALLS = 10;
const LATE = 4;
/** A header of compressed calls, which grpc-js serves. */
const COMPRESSED = [{ name: 'grpc-encoding', value: 'gzip' }];

/** Clients of a shim that serves this handler connect to it. */
let socketPath: string;
let handle: RawUnaryHandler;
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
      // The first answers come after the client has gone, and the others fill everything on their way to it.
      if (called <= LATE) await new Promise<void>((resolve) => waiting.push(resolve));
      return Buffer.alloc(answerSize);
    };
    const client = await connected();
    client.pause();
    call(client);
    // The proxy reads no further when the client does not.
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
