/** The resize API: the gRPC service criresize.v1alpha1.ResizeService and health checks on a socket of its own. */
import type { Socket } from 'node:net';
import { FailureLog, Lazy } from '../../core/index.ts';
import type { ResizeServer, ResizeServerOptions } from './server.ts';

/** A listening socket. */
interface Listening {
  /** Resolves when listening fails. */
  readonly failure: Promise<Error>;
  /** Stops listening. Connections stay open. */
  close(): Promise<void>;
}

export interface ResizeApiOptions extends ResizeServerOptions {
  /** Opens the socket. Every client that can connect to it can resize any pod. */
  readonly listen: (onConnection: (connection: Socket) => void) => Promise<Listening>;
}

export interface ResizeApi {
  /** Resolves when listening fails. */
  readonly failure: Promise<Error>;
  /** Stops listening, then cuts off calls that still run after `graceMs`. End watches before (Resizes.close). */
  close(graceMs: number): Promise<void>;
}

/**
 * Serves the resize API on a socket of its own. Rejects if `listen` does. The server's code is loaded at the first
 * connection: most nodes never have one, and loading it at start would delay the first response to kubelet.
 */
export async function openResizeApi({ listen, ...options }: ResizeApiOptions): Promise<ResizeApi> {
  const { log, path } = options;
  const lazy = new Lazy<ResizeServer>(async () => {
    const { createResizeServer } = await import('./server.ts');
    return createResizeServer(options);
  });
  const failed = 'resize API failed to load; its connections end';
  const failures = new FailureLog(log, { failed, over: 'resize API loaded after failures' });
  const serve = async (connection: Socket): Promise<void> => {
    // The client may disconnect before the server is loaded.
    connection.on('error', () => undefined);
    try {
      const server = await lazy.get();
      failures.succeeded();
      if (!connection.destroyed) server.accept(connection);
    } catch (error) {
      failures.failed(error, { listen: path });
      connection.destroy();
    }
  };
  const listener = await listen((connection) => void serve(connection));
  return {
    failure: listener.failure,
    async close(graceMs) {
      await listener.close();
      const server = await lazy.ifUsed();
      await server?.close(graceMs);
    },
  };
}
