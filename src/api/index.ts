import type { Socket } from 'node:net';
import { loggableError } from '../core/errors/index.ts';
import type { Counters, Log } from '../observe/index.ts';
import type { ResizeServer } from './server.ts';
import type { ServiceParts } from './service.ts';

/** A socket that listens. */
interface Listening {
  /** Resolves when listening fails. */
  readonly failure: Promise<Error>;
  /** Stops listening. Connections stay open. */
  close(): Promise<void>;
}

export interface ResizeApiOptions extends ServiceParts {
  /** The path of the socket, for the log. */
  readonly path: string;
  /** Opens the socket. Every client that can connect can resize any pod. */
  readonly listen: (onConnection: (connection: Socket) => void) => Promise<Listening>;
  readonly log: Log;
  readonly counters: Counters;
}

export interface ResizeApi {
  /** Resolves, should it ever, when listening has failed. */
  readonly failure: Promise<Error>;
  /** Stops listening, then lets calls under way end for so many milliseconds. Watches are to be ended before (Resizes.close). */
  close(graceMs: number): Promise<void>;
}

/**
 * Serves the resize API on a socket of its own. Rejects as `listen` does. What serves it is loaded at the
 * first connection: most nodes have none, and kubelet waits for our first answer.
 */
export async function openResizeApi({ path, listen, ...parts }: ResizeApiOptions): Promise<ResizeApi> {
  const { log } = parts;
  let loading: Promise<ResizeServer> | undefined;
  const serve = async (connection: Socket): Promise<void> => {
    // Its client may go before there is a server to hear of it.
    connection.on('error', () => undefined);
    try {
      loading ??= import('./server.ts').then(({ createResizeServer }) => createResizeServer(parts));
      const server = await loading;
      if (!connection.destroyed) server.accept(connection);
    } catch (error) {
      loading = undefined;
      log.error({ listen: path, ...loggableError(error) }, 'a connection to the resize API cannot be served');
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
