/** The HTTP/2 proxy: forwards the frames of one client connection to the backend or to the local server. */
import type { OnReadOpts, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { MESSAGE_PREFIX_SIZE, MiB, steadyNow } from '../../core/index.ts';
import { ErrorCode, goaway, settingsFrame } from '../../http2/index.ts';
import { ProxyConnection } from './connection.ts';
import { type Handle, type Interception, NO_OBSERVER, type ProxyObserver } from './interception.ts';
import { NoBackend } from './no-backend.ts';
import type { ProxyConnectionOptions } from './options.ts';
import { PairTransport } from './pair-transport.ts';
import { SharedBudget, type SharedLimits } from './shared-budget.ts';
import { ReusedReads, SocketTransport, type Transport, type TransportEvents } from './transport.ts';

/**
 * Opens a socket to the backend.
 * @param onread for `net.connect`: it reuses memory for reads. Without it long responses cost more CPU time
 */
type ConnectBackend = (onread: OnReadOpts) => Socket;

export interface ServeOptions {
  /** Without it there is no backend: this process has to handle all calls. */
  readonly connectBackend?: ConnectBackend;
  /** Serves plain handled calls. Default: the local server serves them. */
  readonly handle?: Handle;
  /** Returns the client's half of a {@link localPair} whose other half has been injected into the local gRPC server. */
  connectLocal(): Duplex;
  readonly interception: Interception;
  readonly observer?: ProxyObserver;
  /** Used by all connections together. Default: a budget of its own. */
  readonly shared?: SharedBudget;
  /** Milliseconds that an amendment may take before the response is sent as received. Default 2000. */
  readonly amendTimeout?: number;
  /** Bytes of the longest message of a handled request. Default 16 MiB. */
  readonly requestLimit?: number;
}

export interface ServedConnection {
  /**
   * Starts a graceful shutdown: sends GOAWAY, and accepts no new streams once the client has received it. The
   * connection closes when the running streams have ended. Watches are ended when nothing else runs.
   */
  shutdown(): void;
  /** Sends GOAWAY and closes. Calls that run are cut off. */
  end(): void;
  /** Closes at once and cuts off running calls. */
  destroy(): void;
  /** Resolves when the client's and the backend's sockets are closed. */
  readonly closed: Promise<void>;
  /** Streams whose response is not complete. */
  readonly activeStreams: number;
  /** Those of them that end by themselves: all but watches. */
  readonly endingStreams: number;
  /** Bytes of responses that the client has not read and the kernel has not taken. */
  readonly unsent: number;
  /** When the last stream ended or, without any, the connection opened: milliseconds of performance.now(). */
  readonly lastUsed: number;
  /** Streams that have ended. */
  readonly calls: number;
}

/**
 * Limits and delays; see {@link ProxyConnectionOptions}. CRI clients accept messages of 16 MiB. A request that is held
 * back takes connection window from other calls meanwhile, so only short ones are.
 */
export const LIMITS = {
  headerListLimit: MiB,
  clientHeaderListLimit: MiB / 4,
  streamLimit: 1024,
  settingsLimit: 64,
  queueLimit: MiB,
  requestLimit: MiB,
  responseLimit: 16 * MiB,
  delayLimit: 4096,
  handledRequestLimit: 16 * MiB + MESSAGE_PREFIX_SIZE,
  amendTimeout: 2000,
  deferredWriteDelay: 50,
  readAhead: MiB / 4,
  handshakeTimeout: 10_000,
  refuseTimeout: 3000,
  gracefulShutdownTimeout: 1000,
  lingerTimeout: 1000,
  deliveryTimeout: 30_000,
} as const satisfies Partial<ProxyConnectionOptions>;

/** Limits of all connections together; see {@link SharedLimits}. */
export const SHARED_LIMITS = {
  held: { reserved: MiB / 16, all: 32 * MiB },
  queued: 16 * MiB,
  lingering: 64,
  streams: { reserved: 64, all: 16_384 },
  calls: { all: 1024, reserved: 4, compressed: 16 },
  requests: 18 * MiB,
} as const satisfies SharedLimits;

const TOO_MANY = 'too many connections';

/** Refuses a client connection before anything is read: there are too many. */
export function refuseConnection(client: Socket, { lingering }: SharedBudget): void {
  const message = Buffer.from(TOO_MANY);
  const closed = {
    get unsent() {
      return client.writableLength;
    },
    destroy: () => {
      lingering.delete(closed);
      client.destroy();
    },
  };
  client.on('error', () => undefined).resume();
  client.end(Buffer.concat([settingsFrame([]), goaway(0, ErrorCode.ENHANCE_YOUR_CALM, message)]));
  const timer = setTimeout(closed.destroy, LIMITS.lingerTimeout).unref();
  client.once('close', () => {
    clearTimeout(timer);
    lingering.delete(closed);
  });
  lingering.add(closed);
}

/**
 * Serves one client connection: opens a backend connection for it, and serves intercepted streams in this process.
 */
export function serveConnection(accepted: Socket, options: ServeOptions): ServedConnection {
  const clientReads = new ReusedReads();
  const client = clientReads.adopt(accepted);
  const backend = options.connectBackend === undefined ? undefined : openBackend(options.connectBackend);
  const closed = Promise.all([whenClosed(client), backend?.closed]).then(() => undefined);
  const connection = new ProxyConnection(
    {
      ...LIMITS,
      handledRequestLimit:
        options.requestLimit === undefined ? LIMITS.handledRequestLimit : options.requestLimit + MESSAGE_PREFIX_SIZE,
      interception: options.interception,
      observer: options.observer ?? NO_OBSERVER,
      shared: options.shared ?? new SharedBudget(SHARED_LIMITS),
      amendTimeout: options.amendTimeout ?? LIMITS.amendTimeout,
      now: steadyNow,
      handle: options.handle,
      connectLocal: (events) => new PairTransport(options.connectLocal(), events),
    },
    (side, events) =>
      side === 'client'
        ? new SocketTransport(client, events, clientReads)
        : (backend?.transport(events) ?? new NoBackend(events)),
  );
  return {
    shutdown: () => connection.shutdown(),
    end: () => connection.end(TOO_MANY),
    destroy: () => connection.destroy(),
    closed,
    get activeStreams() {
      return connection.streams.running;
    },
    get endingStreams() {
      return connection.streams.ending;
    },
    get unsent() {
      return connection.unsent;
    },
    get lastUsed() {
      return connection.streams.lastUsed;
    },
    get calls() {
      return connection.streams.ended;
    },
  };
}

function openBackend(connect: ConnectBackend) {
  const reads = new ReusedReads();
  const socket = connect(reads.options);
  return {
    closed: whenClosed(socket),
    transport: (events: TransportEvents): Transport => new SocketTransport(socket, events, reads),
  };
}

function whenClosed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', () => resolve());
  });
}
