import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';

export interface MostConnections {
  readonly connections: number;
  /** How long a connection may last, in milliseconds. */
  readonly connectionMs: number;
}

/** The limits of connections, which a stream of updates has not: it has its own. */
export interface ConnectionLimits {
  readonly admit: (socket: Socket) => void;
  readonly release: (socket: Socket) => void;
  /** Connections that these limits have ended, in place of their clients. */
  readonly ended: Pick<WeakSet<Socket>, 'has'>;
}

/**
 * Limits what connections cost. A new one ends the oldest if there are too many, and each ends after some seconds:
 * clients that send or read slowly shut nobody out.
 */
export function limitConnections(http: Server, { connections, connectionMs }: MostConnections): ConnectionLimits {
  const timers = new Map<Socket, NodeJS.Timeout>();
  const ended = new WeakSet<Socket>();
  const end = (socket: Socket): void => {
    ended.add(socket);
    socket.destroy();
  };
  const release = (socket: Socket): void => {
    clearTimeout(timers.get(socket));
    timers.delete(socket);
  };
  const admit = (socket: Socket): void => {
    if (socket.destroyed) return;
    const [oldest] = timers.keys();
    if (timers.size >= connections && oldest !== undefined) {
      end(oldest);
      release(oldest);
    }
    timers.set(socket, setTimeout(() => end(socket), connectionMs).unref());
  };
  http.on('connection', (socket) => {
    admit(socket);
    socket.once('close', () => release(socket));
  });
  return { admit, release, ended };
}

/**
 * Returns a function that ends the connection of a request if it is not the first one there. Requests that follow
 * without waiting for answers would otherwise all be answered in memory, before a client reads one byte.
 */
export function oneRequestEach(): (request: IncomingMessage) => boolean {
  const used = new WeakSet<Socket>();
  return ({ socket }) => {
    if (used.has(socket)) {
      socket.destroy();
      return false;
    }
    used.add(socket);
    return true;
  };
}
