import { type Server, type Socket, createServer } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { messageOf } from '../../core/errors/index.ts';
import { ListenError, type Listener } from './listener.ts';

export interface PassedListenOptions {
  /** A listening unix socket that this process was started with. */
  readonly descriptor: number;
  /** Where it is bound, for errors. */
  readonly path: string;
  /** Takes each accepted connection. */
  readonly onConnection: (socket: Socket) => void;
}

/**
 * Accepts on a socket that somebody else has made and keeps: its path, its rights and its folder are theirs, so nothing of that
 * is touched. Who connects once we have stopped waits in its queue for the next one of us. Rejects with ListenError.
 */
export async function listenOnPassed({ descriptor, path, onConnection }: PassedListenOptions): Promise<Listener> {
  const server = createServer(onConnection);
  try {
    await accepting(server, descriptor);
  } catch (error) {
    throw new ListenError(`cannot listen on ${path}, which was passed on: ${messageOf(error)}`, { cause: error });
  }
  return {
    mirrorBackend: () => undefined,
    failure: new Promise((resolve) => server.once('error', resolve)),
    async close() {
      // No turn before: who has not been accepted by now is the next one's. One after: who has been is told that we go.
      server.close();
      await turn();
    },
  };
}

function accepting(server: Server, descriptor: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ fd: descriptor }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
