import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { MonitoringLimits } from './limits.ts';

/** The limits of connections, which a stream of updates has not: it has its own. */
export interface ConnectionLimits {
  readonly admit: (socket: Socket) => void;
  readonly release: (socket: Socket) => void;
}

/**
 * Limits what connections cost. A new one ends the oldest if there are too many, and each ends after some seconds: clients that send or
 * read slowly shut nobody out.
 */
export function limitConnections(http: Server, { connections, connectionMs }: MonitoringLimits): ConnectionLimits {
  const timers = new Map<Socket, NodeJS.Timeout>();
  const release = (socket: Socket): void => {
    clearTimeout(timers.get(socket));
    timers.delete(socket);
  };
  const admit = (socket: Socket): void => {
    if (socket.destroyed) return;
    const [oldest] = timers.keys();
    if (timers.size >= connections && oldest !== undefined) {
      oldest.destroy();
      release(oldest);
    }
    timers.set(socket, setTimeout(() => socket.destroy(), connectionMs).unref());
  };
  http.on('connection', (socket) => {
    admit(socket);
    socket.once('close', () => release(socket));
  });
  return { admit, release };
}

/**
 * Returns a function that ends the connection of a request if it is not the first one there. Requests that follow without waiting for
 * answers would otherwise all be answered in memory, before a client reads one byte.
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
