import { type OnReadOpts, type Socket, createConnection } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Interception, ServedConnection } from './proxy/index.ts';

/** What the proxy needs to serve a connection. */
export interface ConnectionOptions {
  readonly connectBackend: (onread: OnReadOpts) => Socket;
  readonly connectLocal: () => Duplex;
  readonly interception: Interception;
}

export interface ClientConnectionsOptions {
  /** Starts the proxy for an accepted connection. */
  readonly serve: (client: Socket, options: ConnectionOptions) => ServedConnection;
  /** Absolute path of the backend's socket. */
  readonly backendPath: string;
  /** Opens a connection to the local server. */
  readonly connectLocal: () => Duplex;
  readonly interception: Interception;
  /** Refuses a client connection: there are too many. */
  readonly refuse: (client: Socket) => void;
  /** Called for each connection that is refused or ended because there are too many. */
  readonly tooMany: () => void;
  /** Called when a connection to the backend has been established. */
  readonly onBackend: () => void;
}

/**
 * Client connections at the same time. kubelet needs two, and each program that calls the CRI one. There is no idle timeout: kubelet's
 * connections are idle for long.
 */
export const CONNECTION_LIMIT = 256;

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
  refuse,
  tooMany,
  ...options
}: ClientConnectionsOptions): ClientConnections {
  const connections = new Set<ServedConnection>();
  let closing = false;

  const connectBackend = (onread: OnReadOpts): Socket =>
    createConnection({ path: backendPath, onread }).once('connect', onBackend);

  return {
    accept(client) {
      if (connections.size >= CONNECTION_LIMIT) {
        tooMany();
        if (!makeRoom(connections)) {
          refuse(client);
          return;
        }
      }
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

/** Ends a connection without running calls. Returns whether there is one. */
function makeRoom(connections: Set<ServedConnection>): boolean {
  const unused = leastUsed(connections);
  if (unused === undefined) return false;
  connections.delete(unused);
  unused.end();
  return true;
}

/** Returns the connection without running calls that was used least recently, or never. Its client connects again. */
function leastUsed(connections: Iterable<ServedConnection>): ServedConnection | undefined {
  let found: ServedConnection | undefined;
  for (const connection of connections) {
    if (connection.activeStreams > 0) continue;
    if (found === undefined || connection.lastUsed < found.lastUsed) found = connection;
  }
  return found;
}
