import { type Server, type Socket, createServer } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { messageOf } from '../../core/errors/index.ts';
import { ListenError, type Listener } from './listener.ts';

export interface InheritedListenOptions {
  /** The file descriptor of a listening unix socket that this process inherited. */
  readonly descriptor: number;
  /** The socket's path, for errors. */
  readonly path: string;
  /** Receives each accepted connection. */
  readonly onConnection: (socket: Socket) => void;
}

/**
 * Accepts connections on a socket that another process (systemd) created and keeps open. Its path, its permissions and
 * its folder are not changed. Clients that connect after the shim has stopped wait in its queue for the next shim.
 * Rejects with ListenError.
 */
export async function listenOnInherited({ descriptor, path, onConnection }: InheritedListenOptions): Promise<Listener> {
  const server = createServer(onConnection);
  try {
    await accepting(server, descriptor);
  } catch (error) {
    throw new ListenError(`cannot listen on inherited socket ${path}: ${messageOf(error)}`, { cause: error });
  }
  return {
    mirrorBackend: () => undefined,
    failure: new Promise((resolve) => server.once('error', resolve)),
    async close() {
      // Clients not accepted by now belong to the next shim. The turn lets accepted connections start their graceful
      // shutdown.
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
