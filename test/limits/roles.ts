import { once } from 'node:events';
import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from '@grpc/grpc-js';
import { RawClient } from '../support/daemon/test-daemon.ts';
import { frame, SETTINGS_ACK, settings } from '../support/http2/wire.ts';
import { attacks } from './attacks.ts';

/** The other processes of the measurement: backend, client and attacker. Each is this program with a role. */

const raw = (bytes: Buffer): Buffer => bytes;

/** Serves /s/Echo and /s/Large. */
export async function serve(path: string): Promise<void> {
  const server = new Server();
  const answer =
    (of: (request: Buffer) => Buffer) => (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>) =>
      respond(null, of(call.request));
  server.register('/s/Echo', answer(raw), raw, raw, 'unary');
  server.register(
    '/s/Large',
    answer(() => Buffer.alloc(300_000)),
    raw,
    raw,
    'unary',
  );
  for (const method of ['ListPodSandbox', 'ListContainers', 'Status', 'RuntimeConfig', 'Version'])
    server.register(
      `/runtime.v1.RuntimeService/${method}`,
      answer(() => Buffer.alloc(0)),
      raw,
      raw,
      'unary',
    );
  await new Promise((resolve) =>
    server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), () => resolve(undefined)),
  );
  process.send?.('ready');
}

/** A backend that sends PING as fast as it can, and reads nothing. */
export async function flood(path: string): Promise<void> {
  const pings = Buffer.concat(Array.from({ length: 4000 }, () => frame(6, 0, 0, Buffer.alloc(8))));
  const server = createServer((socket) => {
    socket.on('error', () => undefined).pause();
    const more = (): void => {
      while (!socket.destroyed && socket.write(pings));
    };
    socket.on('drain', more).write(Buffer.concat([settings(), SETTINGS_ACK]));
    more();
  });
  server.listen(path);
  await once(server, 'listening');
  process.send?.('ready');
}

/** The 99th percentiles, in milliseconds, of simultaneous calls through the shim and to the backend itself. */
export interface Latency {
  readonly shim: number;
  readonly direct: number;
}

/** Calls /s/Echo every 5 ms, alternately through the shim and directly, until stopped. Sends a {@link Latency}. */
export async function call(path: string, backend: string): Promise<void> {
  const ways = [path, backend].map((socket) => ({ client: new RawClient(socket), durations: [] as number[] }));
  const stop = new AbortController();
  process.once('message', () => stop.abort());
  while (!stop.signal.aborted)
    for (const { client, durations } of ways) {
      const start = performance.now();
      await client.code('/s/Echo', 'hello');
      durations.push(performance.now() - start);
      await delay(5);
    }
  const [shim = 0, direct = 0] = ways.map(({ durations }) => {
    durations.sort((a, b) => a - b);
    return durations[Math.floor(durations.length * 0.99)] ?? 0;
  });
  process.send?.({ shim, direct } satisfies Latency);
  for (const { client } of ways) client.close();
}

/** Runs an attack through this many connections. */
export async function attack(path: string, name: string, connections: number): Promise<void> {
  const run = attacks[name as keyof typeof attacks];
  await Promise.all(Array.from({ length: connections }, () => run(path)));
}
