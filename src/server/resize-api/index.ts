import type { Socket } from 'node:net';
import { tracesOf } from '../../errors/index.ts';
import type { Counters, Log } from '../../observe/index.ts';
import { type Listener, listen } from '../listener.ts';
import { listenOnPassed } from '../passed.ts';
import type { ResizeServer } from './server.ts';
import type { ServiceParts } from './service.ts';

export interface ResizeApiOptions extends ServiceParts {
  /** Absolute path of the socket. */
  readonly path: string;
  /** Of the socket: whoever may connect may resize any pod. */
  readonly mode: number;
  /** A socket that is there already, and listens: then path is where it is bound, and mode is its own affair. */
  readonly passed?: { readonly descriptor: number; readonly path: string };
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
export async function openResizeApi({ path, mode, passed, ...parts }: ResizeApiOptions): Promise<ResizeApi> {
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
      log.error(
        { listen: passed?.path ?? path, ...tracesOf(error) },
        'a connection to the resize API cannot be served',
      );
      connection.destroy();
    }
  };
  const onConnection = (connection: Socket): void => void serve(connection);
  const listener: Listener =
    passed === undefined
      ? await listen({ path, rights: { mode }, onConnection, log })
      : await listenOnPassed({ ...passed, onConnection });
  return {
    failure: listener.failure,
    async close(graceMs) {
      await listener.close();
      await (await loading)?.close(graceMs);
    },
  };
}
