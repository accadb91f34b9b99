import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';

export interface MostConnections {
  readonly connections: number;
  /** How long a connection may last, in milliseconds. */
  readonly connectionMs: number;
}

/** Connection limits. Exempt a stream of updates from them, because it has limits of its own. */
export interface ConnectionLimits {
  readonly admit: (socket: Socket) => void;
  readonly release: (socket: Socket) => void;
  /** Connections that these limits have ended, in place of their clients. */
  readonly ended: Pick<WeakSet<Socket>, 'has'>;
}

/**
 * Limits the number and the duration of connections. When there are too many, a new connection closes the oldest one,
 * and each ends after some seconds: slow clients cannot keep others out.
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
 * Returns a function that closes the connection of any request after the first. Otherwise pipelined requests would all
 * be answered in memory before the client reads a byte.
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
