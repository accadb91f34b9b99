import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Interception } from '../../../src/server/proxy/interception.ts';
import { localPair } from '../../../src/server/proxy/pair-transport.ts';
import { type ServedConnection, serveConnection } from '../../../src/server/proxy/serve.ts';
import { routeOf } from './wire.ts';

/** The proxy between real gRPC peers, over unix sockets. Messages are raw bytes. */

const MAX = 20 * MiB;
export const OPTIONS = {
  'grpc.max_receive_message_length': MAX,
  'grpc.max_send_message_length': MAX,
  'grpc.initial_reconnect_backoff_ms': 50,
  'grpc.max_reconnect_backoff_ms': 200,
  'grpc.use_local_subchannel_pool': 1,
  'grpc.enable_retries': 0,
};

const raw = (bytes: Buffer): Buffer => bytes;
type Handlers = Record<string, grpc.UntypedHandleCall>;

/** Serves methods whose path ends in the name of their call type. */
function serverOf(methods: Handlers): grpc.Server {
  const server = new grpc.Server(OPTIONS);
  for (const [path, handler] of Object.entries(methods)) {
    const shape = /(unary|clientStream|serverStream|bidi)$/.exec(path)?.[1] ?? 'unary';
    server.register(path, handler, raw, raw, shape);
  }
  return server;
}

export class Scene {
  readonly folder = mkdtempSync(join(tmpdir(), 'proxy-'));
  readonly connections: ServedConnection[] = [];
  readonly #clients: grpc.Client[] = [];
  readonly #methods: Handlers;
  readonly #interception: Interception;
  readonly #local: grpc.Server;
  readonly #front: net.Server;
  #killBackend: () => void = () => undefined;

  constructor(methods: Handlers, interception: Partial<Interception> = {}) {
    this.#methods = methods;
    this.#interception = { route: routeOf, amend: () => undefined, amendMessage: () => undefined, ...interception };
    this.#local = serverOf(Object.fromEntries(Object.entries(methods).filter(([path]) => path.startsWith('/handle'))));
    const injector = this.#local.createConnectionInjector(grpc.ServerCredentials.createInsecure());
    this.#front = net.createServer((socket) => {
      const connection = serveConnection(socket, {
        connectBackend: (onread) => net.connect({ path: this.backendPath, onread }),
        connectLocal: () => {
          const [server, client] = localPair();
          injector.injectConnection(server);
          return client;
        },
        interception: this.#interception,
      });
      this.connections.push(connection);
    });
  }

  get backendPath(): string {
    return join(this.folder, 'backend.sock');
  }

  get path(): string {
    return join(this.folder, 'front.sock');
  }

  async start(): Promise<this> {
    this.#front.listen(this.path);
    await once(this.#front, 'listening');
    return this;
  }

  async startBackend(): Promise<this> {
    const server = serverOf(this.#methods);
    const injector = server.createConnectionInjector(grpc.ServerCredentials.createInsecure());
    const sockets = new Set<net.Socket>();
    const listener = net.createServer((socket) => {
      sockets.add(socket);
      injector.injectConnection(socket);
    });
    listener.listen(this.backendPath);
    await once(listener, 'listening');
    this.#killBackend = () => {
      for (const socket of sockets) socket.destroy();
      listener.close();
      server.forceShutdown();
    };
    return this;
  }

  /** Behaves as if the process had been killed: its sockets close without a message. */
  killBackend(): void {
    this.#killBackend();
    this.#killBackend = () => undefined;
  }

  client(options: grpc.ClientOptions = {}): grpc.Client {
    const client = new grpc.Client(`unix:${this.path}`, grpc.credentials.createInsecure(), { ...OPTIONS, ...options });
    this.#clients.push(client);
    return client;
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.close();
    for (const connection of this.connections) connection.destroy();
    this.killBackend();
    this.#local.forceShutdown();
    this.#front.close();
    await Promise.all(this.connections.map(({ closed }) => closed));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export interface Answer {
  readonly error: grpc.ServiceError | null;
  readonly message: Buffer | undefined;
  readonly metadata: grpc.Metadata | undefined;
  readonly status: grpc.StatusObject;
}

/** Makes a unary call. Resolves with its status. */
export function unary(
  client: grpc.Client,
  path: string,
  message: Buffer,
  options: { metadata?: grpc.Metadata; deadline?: number; onCall?: (call: grpc.ClientUnaryCall) => void } = {},
): Promise<Answer> {
  const { metadata = new grpc.Metadata(), deadline = 120_000 } = options;
  return new Promise((resolve) => {
    let received: grpc.Metadata | undefined;
    let answer: { error: grpc.ServiceError | null; message: Buffer | undefined } | undefined;
    let status: grpc.StatusObject | undefined;
    const settle = (): void => {
      if (answer !== undefined && status !== undefined) resolve({ ...answer, metadata: received, status });
    };
    const call = client.makeUnaryRequest(
      path,
      raw,
      raw,
      message,
      metadata,
      { deadline: Date.now() + deadline },
      (error, reply) => {
        answer = { error, message: reply };
        settle();
      },
    );
    call.on('metadata', (seen: grpc.Metadata) => {
      received = seen;
    });
    call.on('status', (seen: grpc.StatusObject) => {
      status = seen;
      settle();
    });
    options.onCall?.(call);
  });
}

export { raw };
