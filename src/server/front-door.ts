import { type OnReadOpts, type Socket, createConnection } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Interception } from './proxy/index.ts';

/** One client's connection in the switch. */
export interface Connection {
  /** Tells the client that no new streams are taken; closes when the running ones have ended. */
  shutdown(): void;
  /** Ends it at once. */
  destroy(): void;
  readonly closed: Promise<void>;
  readonly activeStreams: number;
}

/** What the switch needs to serve a connection. */
export interface ConnectionOptions {
  readonly connectBackend: (onread: OnReadOpts) => Socket;
  readonly connectLocal: () => Duplex;
  readonly interception: Interception;
}

export interface FrontDoorOptions {
  /** The switch: gives each accepted connection its way. */
  readonly serve: (client: Socket, options: ConnectionOptions) => Connection;
  /** Absolute path of the backend's socket. */
  readonly backendPath: string;
  /** Opens a connection to the local server. */
  readonly connectLocal: () => Duplex;
  readonly interception: Interception;
  /** A connection to the backend has come about. */
  readonly onBackend: () => void;
}

/** All connections of clients, from the first to the last. */
export interface FrontDoor {
  accept(client: Socket): void;
  readonly connections: number;
  /**
   * Takes no new streams, and resolves when the running ones have ended: by themselves, or cut after `timeout`
   * milliseconds. Gives the number of streams that were cut.
   */
  shutdown(timeout: number): Promise<number>;
}

export function openFrontDoor({ serve, backendPath, onBackend, ...options }: FrontDoorOptions): FrontDoor {
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
