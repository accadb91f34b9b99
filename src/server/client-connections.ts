import { type OnReadOpts, type Socket, createConnection } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Interception } from './proxy/index.ts';

/** One proxied client connection. */
export interface Connection {
  /** Starts a graceful shutdown: no new streams; closes when the running ones have ended. */
  shutdown(): void;
  /** Closes at once. */
  destroy(): void;
  readonly closed: Promise<void>;
  readonly activeStreams: number;
}

/** What the proxy needs to serve a connection. */
export interface ConnectionOptions {
  readonly connectBackend: (onread: OnReadOpts) => Socket;
  readonly connectLocal: () => Duplex;
  readonly interception: Interception;
}

export interface ClientConnectionsOptions {
  /** Starts the proxy for an accepted connection. */
  readonly serve: (client: Socket, options: ConnectionOptions) => Connection;
  /** Absolute path of the backend's socket. */
  readonly backendPath: string;
  /** Opens a connection to the local server. */
  readonly connectLocal: () => Duplex;
  readonly interception: Interception;
  /** Called when a connection to the backend has been established. */
  readonly onBackend: () => void;
}

/** All client connections of the CRI socket. */
export interface ClientConnections {
  /** Serves a client connection. During a shutdown the connection is shut down at once. */
  accept(client: Socket): void;
  /** The number of open client connections. */
  readonly connections: number;
  /**
   * Shuts all connections down gracefully. Streams that still run after `timeout` milliseconds are cut off. Resolves
   * with the number of those.
   */
  shutdown(timeout: number): Promise<number>;
}

export function createClientConnections({
  serve,
  backendPath,
  onBackend,
  ...options
}: ClientConnectionsOptions): ClientConnections {
  const connections = new Set<Connection>();
  let closing = false;

  const connectBackend = (onread: OnReadOpts): Socket =>
    createConnection({ path: backendPath, onread }).once('connect', onBackend);

  return {
    accept(client) {
      const connection = serve(client, { ...options, connectBackend });
      connections.add(connection);
      void connection.closed.finally(() => connections.delete(connection));
      if (closing) connection.shutdown();
    },
    get connections() {
      return connections.size;
    },
    async shutdown(timeout) {
      closing = true;
      const open = [...connections];
      for (const connection of open) connection.shutdown();
      const allClosed = Promise.all(open.map(({ closed }) => closed));
      const timer = new AbortController();
      await Promise.race([allClosed, delay(timeout, undefined, { signal: timer.signal }).catch(() => undefined)]);
      timer.abort();
      const cut = open.reduce((sum, { activeStreams }) => sum + activeStreams, 0);
      for (const connection of connections) connection.destroy();
      await allClosed;
      return cut;
    },
  };
}
