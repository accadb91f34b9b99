import type { Socket } from 'node:net';
import { tracesOf } from '../../errors/index.ts';
import type { Counters, Log } from '../../observe/index.ts';
import { listen } from '../listener.ts';
import type { ResizeServer } from './server.ts';
import type { ServiceParts } from './service.ts';

export interface ResizeApiOptions extends ServiceParts {
  /** Absolute path of the socket. */
  readonly path: string;
  /** Of the socket: whoever may connect may resize any pod. */
  readonly mode: number;
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
 * Serves the resize API on a socket of its own. Rejects with ListenError, as {@link listen} does. What serves it is loaded at the
 * first connection: most nodes have none, and kubelet waits for our first answer.
 */
export async function openResizeApi({ path, mode, ...parts }: ResizeApiOptions): Promise<ResizeApi> {
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
      log.error({ listen: path, ...tracesOf(error) }, 'a connection to the resize API cannot be served');
      connection.destroy();
    }
  };
  const listener = await listen({ path, rights: { mode }, onConnection: (connection) => void serve(connection), log });
  return {
    failure: listener.failure,
    async close(graceMs) {
      await listener.close();
      await (await loading)?.close(graceMs);
    },
  };
}
