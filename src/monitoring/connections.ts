import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { MonitoringLimits } from './limits.ts';

/**
 * Limits what connections cost. A new one ends the oldest if there are too many, and each ends after some seconds: clients that send or
 * read slowly shut nobody out.
 */
export function limitConnections(http: Server, { connections, connectionMs }: MonitoringLimits): void {
  const open = new Set<Socket>();
  http.on('connection', (socket) => {
    if (open.size >= connections) {
      const [oldest] = open;
      oldest?.destroy();
      if (oldest !== undefined) open.delete(oldest);
    }
    open.add(socket);
    const timer = setTimeout(() => socket.destroy(), connectionMs).unref();
    socket.once('close', () => {
      clearTimeout(timer);
      open.delete(socket);
    });
  });
}
