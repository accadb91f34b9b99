import { createConnection, type OnReadOpts, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { within } from '../core/index.ts';
import type { PeerOf } from './listener/peer.ts';
import type { LocalCalls } from './local-calls.ts';
import type { Handle, Interception } from './proxy/interception.ts';
import type { ServedConnection } from './proxy/serve.ts';
import { type Crowd, roomFor } from './unary/connection-room.ts';

/** Options for serving a connection. */
export interface ConnectionOptions {
  readonly connectLocal: () => Duplex;
  readonly handle: Handle;
  readonly interception: Interception;
}

export interface ClientConnectionsOptions {
  /** Starts the proxy for an accepted connection. */
  readonly serve: (client: Socket, options: ConnectionOptions) => ServedConnection;
  /** The most connections that are open at the same time. */
  readonly limit: number;
  /** Serves handled calls. */
  readonly local: Pick<LocalCalls, 'handle' | 'connect'>;
  readonly interception: Interception;
  /** Refuses a client connection: there are too many. */
  readonly refuse: (client: Socket) => void;
  /** Returns the process of a client, as far as that is known. */
  readonly peerOf: PeerOf;
  /** Called for each connection refused or ended because there are too many, with the largest holder, if any. */
  readonly tooMany: (crowd: Crowd | undefined) => void;
}

/**
 * Maximum number of client connections of the CRI socket. kubelet needs two, and any other CRI client one. There is no
 * idle timeout, because kubelet's connections are idle for long.
 */
export const CONNECTION_LIMIT = 256;

/**
 * Returns what opens connections to the backend.
 * @param path absolute path of the backend's socket
 * @param onConnect called when a connection has been established
 */
export const backendAt =
  (path: string, onConnect: () => void) =>
  (onread: OnReadOpts): Socket =>
    createConnection({ path, onread }).once('connect', onConnect);

/** The time for clients to close their connections, in milliseconds. */
export interface Patience {
  readonly idle: number;
  /** If a client has unread answers. */
  readonly unread: number;
}

/** All client connections of a socket. */
export interface ClientConnections {
  /** Serves a client connection. During a shutdown the connection is shut down at once. */
  accept(client: Socket): void;
  /** The number of open client connections. */
  readonly connections: number;
  /** The processes of the clients, as far as they are known. */
  peers(): ReadonlySet<number>;
  /**
   * Shuts down all connections gracefully. After `timeout` milliseconds, cuts off streams that still run and unread
   * answers. Resolves with the number of cut-off streams; the unread answers of a connection count as one.
   * @param patience when clients that do not close are cut off if no call runs. Default: after `timeout`
   */
  shutdown(timeout: number, patience?: Patience): Promise<number>;
}

/** Returns the client connections of a socket, none of which is open yet. */
export function createClientConnections({
  serve,
  limit,
  local,
  refuse,
  peerOf,
  tooMany,
  ...options
}: ClientConnectionsOptions): ClientConnections {
  const connections: OpenConnections = new Map();
  let closing = false;

  return {
    accept(client) {
      const peer = peerOf(client);
      if (connections.size >= limit && !makeRoom(connections, peer, tooMany)) {
        refuse(client);
        return;
      }
      const connection = serve(client, { ...options, ...localOf(local, peer) });
      connections.set(connection, peer);
      void connection.closed.finally(() => connections.delete(connection));
      if (closing) connection.shutdown();
    },
    get connections() {
      return connections.size;
    },
    peers: () => peersOf(connections),
    async shutdown(timeout, patience = { idle: timeout, unread: timeout }) {
      closing = true;
      const open = [...connections.keys()];
      for (const connection of open) connection.shutdown();
      const allClosed = Promise.all(open.map(({ closed }) => closed));
      await untilClosed(timeout, patience, connections, allClosed);
      const cut = open.reduce((sum, { activeStreams, unsent }) => sum + Math.max(activeStreams, unsent > 0 ? 1 : 0), 0);
      for (const connection of connections.keys()) connection.destroy();
      await allClosed;
      return cut;
    },
  };
}

/** Waits until all connections are closed, at most for the time that the busiest of them gets. */
async function untilClosed(
  timeout: number,
  { idle, unread }: Patience,
  connections: OpenConnections,
  allClosed: Promise<unknown>,
): Promise<void> {
  let waited = 0;
  const waitUntil = async (milliseconds: number): Promise<void> => {
    await within(Math.min(milliseconds, timeout) - waited, allClosed);
    waited = Math.min(milliseconds, timeout);
  };
  await waitUntil(idle);
  if (sumOf(connections, 'unsent') > 0) await waitUntil(unread);
  if (sumOf(connections, 'endingStreams') > 0) await waitUntil(timeout);
}

const sumOf = (connections: OpenConnections, what: 'unsent' | 'endingStreams'): number =>
  [...connections.keys()].reduce((sum, connection) => sum + connection[what], 0);

const localOf = (
  local: ClientConnectionsOptions['local'],
  client: number | undefined,
): Pick<ConnectionOptions, 'connectLocal' | 'handle'> => ({
  connectLocal: () => local.connect(client),
  handle: (call, respond) => local.handle(call, respond, client),
});

/** Open connections with the processes of their clients, oldest first. */
type OpenConnections = Map<ServedConnection, number | undefined>;

const peersOf = (connections: OpenConnections): ReadonlySet<number> =>
  new Set([...connections.values()].filter((peer) => peer !== undefined));

/** Ends a connection to make room for a new one. Returns false if the new one has to be refused. */
function makeRoom(
  connections: OpenConnections,
  peer: number | undefined,
  tooMany: ClientConnectionsOptions['tooMany'],
): boolean {
  const all = [...connections].map(([connection, of]) => {
    const { activeStreams, calls, lastUsed } = connection;
    return { connection, activeStreams, calls, lastUsed, peer: of };
  });
  const { crowd, ends } = roomFor(peer, all);
  tooMany(crowd);
  if (ends === undefined) return false;
  connections.delete(ends.connection);
  ends.connection.end();
  return true;
}
