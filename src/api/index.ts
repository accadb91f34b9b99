/** The resize API: the gRPC service criresize.v1alpha1.ResizeService and health checks on a socket of its own. */
import type { Socket } from 'node:net';
import { loggableError } from '../core/errors/index.ts';
import type { Counters, Log } from '../observe/index.ts';
import type { ResizeServer } from './server.ts';
import type { ServiceParts } from './service.ts';

/** A listening socket. */
interface Listening {
  /** Resolves when listening fails. */
  readonly failure: Promise<Error>;
  /** Stops listening. Connections stay open. */
  close(): Promise<void>;
}

export interface ResizeApiOptions extends ServiceParts {
  /** The path of the socket, for the log. */
  readonly path: string;
  /** Opens the socket. Every client that can connect to it can resize any pod. */
  readonly listen: (onConnection: (connection: Socket) => void) => Promise<Listening>;
  /** Returns the process of a client, as far as that is known. */
  readonly peerOf: (connection: Socket) => number | undefined;
  readonly log: Log;
  readonly counters: Counters;
}

export interface ResizeApi {
  /** Resolves when listening fails. */
  readonly failure: Promise<Error>;
  /** Stops listening, then cuts off calls that still run after `graceMs`. End watches before (Resizes.close). */
  close(graceMs: number): Promise<void>;
}

/**
 * Serves the resize API on a socket of its own. Rejects if `listen` does. The server's code is loaded at the first
 * connection: most nodes never have one, and loading it at start would delay the first response to kubelet.
 */
export async function openResizeApi({ path, listen, peerOf, ...parts }: ResizeApiOptions): Promise<ResizeApi> {
  const { log } = parts;
  let loading: Promise<ResizeServer> | undefined;
  const serve = async (connection: Socket): Promise<void> => {
    const peer = peerOf(connection);
    // The client may disconnect before the server is loaded.
    connection.on('error', () => undefined);
    try {
      loading ??= import('./server.ts').then(({ createResizeServer }) => createResizeServer({ ...parts, path }));
      const server = await loading;
      if (!connection.destroyed) server.accept(connection, peer);
    } catch (error) {
      loading = undefined;
      log.error({ listen: path, ...loggableError(error) }, 'resize API failed to load; connection closed');
      connection.destroy();
    }
  };
  const listener = await listen((connection) => void serve(connection));
  return {
    failure: listener.failure,
    async close(graceMs) {
      await listener.close();
      await (await loading)?.close(graceMs);
    },
  };
}
