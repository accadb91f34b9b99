/** The HTTP/2 proxy: forwards the frames of one client connection to the backend or to the local server. */
import type { OnReadOpts, Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import { ProxyConnection } from './connection.ts';
import type { Interception } from './interception.ts';
import { NO_OBSERVER, type ProxyObserver } from './observer.ts';
import type { ProxyConnectionOptions } from './options.ts';
import { PairTransport, ReusedReads, SocketTransport } from './transport/index.ts';

export type { Exchange, Interception, MaybePromise } from './interception.ts';
export { NO_OBSERVER } from './observer.ts';
export type { Outcome, ProxyObserver, Side, SkipReason } from './observer.ts';

export interface ServeOptions {
  /**
   * Opens a socket to the backend.
   * @param onread for `net.connect`: it reuses memory for reads. Without it long responses cost more CPU time
   */
  connectBackend(onread: OnReadOpts): Socket;
  /** Returns one half of a `duplexPair` whose other half has been injected into the local gRPC server. */
  connectLocal(): Duplex;
  readonly interception: Interception;
  readonly observer?: ProxyObserver;
  /** Milliseconds that an amendment may take before the response is sent as received. Default 2000. */
  readonly amendTimeout?: number;
}

export interface ServedConnection {
  /**
   * Starts a graceful shutdown: sends GOAWAY, and accepts no new streams once the client has received it. The
   * connection closes when the running streams have ended. Watches are ended when nothing else runs.
   */
  shutdown(): void;
  /** Closes at once and cuts off running calls. */
  destroy(): void;
  /** Resolves when the client's and the backend's sockets are closed. */
  readonly closed: Promise<void>;
  /** Streams whose response is not complete. */
  readonly activeStreams: number;
}

const MIB = 1_048_576;
/** Limits and delays; see {@link ProxyConnectionOptions}. CRI clients accept messages of 16 MiB. */
export const LIMITS = {
  headerListLimit: MIB,
  requestLimit: MIB,
  responseLimit: 16 * MIB,
  heldLimit: 32 * MIB,
  amendTimeout: 2000,
  deferredWriteDelay: 5,
  readAhead: MIB / 4,
  refuseTimeout: 3000,
  gracefulShutdownTimeout: 1000,
  lingerTimeout: 1000,
} as const satisfies Partial<ProxyConnectionOptions>;

/**
 * Serves one client connection: opens a backend connection for it, and leads intercepted streams to the local server.
 */
export function serveConnection(client: Socket, options: ServeOptions): ServedConnection {
  const reads = new ReusedReads();
  const backend = options.connectBackend(reads.options);
  const closed = Promise.all([whenClosed(client), whenClosed(backend)]).then(() => undefined);
  const connection = new ProxyConnection(
    {
      ...LIMITS,
      interception: options.interception,
      observer: options.observer ?? NO_OBSERVER,
      amendTimeout: options.amendTimeout ?? LIMITS.amendTimeout,
      now: () => performance.now(),
      connectLocal: (events) => new PairTransport(options.connectLocal(), events),
    },
    (side, events) =>
      side === 'client' ? new SocketTransport(client, events) : new SocketTransport(backend, events, reads),
  );
  return {
    shutdown: () => connection.shutdown(),
    destroy: () => connection.destroy(),
    closed,
    get activeStreams() {
      return connection.streams.running;
    },
  };
}

function whenClosed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', () => resolve());
  });
}
