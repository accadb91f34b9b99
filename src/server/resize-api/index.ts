import type { Counters, Log } from '../../observe/index.ts';
import { listen } from '../listener.ts';
import { createResizeServer } from './server.ts';
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

/** Serves the resize API on a socket of its own. Rejects with ListenError, as {@link listen} does. */
export async function openResizeApi({ path, mode, ...parts }: ResizeApiOptions): Promise<ResizeApi> {
  const server = createResizeServer(parts);
  const listener = await listen({
    path,
    rights: { mode },
    onConnection: (connection) => server.accept(connection),
    log: parts.log,
  });
  return {
    failure: listener.failure,
    async close(graceMs) {
      await listener.close();
      await server.close(graceMs);
    },
  };
}
