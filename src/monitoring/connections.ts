import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { MonitoringLimits } from './limits.ts';

/**
 * Limits what connections cost. A new one ends the oldest if there are too many, and each ends after some seconds: clients that send or
 * read slowly shut nobody out.
 * @returns releases a connection from these limits: it has its own
 */
export function limitConnections(
  http: Server,
  { connections, connectionMs }: MonitoringLimits,
): (socket: Socket) => void {
  const open = new Set<Socket>();
  const timers = new Map<Socket, NodeJS.Timeout>();
  const release = (socket: Socket): void => {
    clearTimeout(timers.get(socket));
    timers.delete(socket);
    open.delete(socket);
  };
  http.on('connection', (socket) => {
    if (open.size >= connections) {
      const [oldest] = open;
      oldest?.destroy();
      if (oldest !== undefined) release(oldest);
    }
    open.add(socket);
    timers.set(socket, setTimeout(() => socket.destroy(), connectionMs).unref());
    socket.once('close', () => release(socket));
  });
  return release;
}
