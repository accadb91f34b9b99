import type { Duplex } from 'node:stream';
import { ServerCredentials, type ServerUnaryCall, type sendUnaryData } from '@grpc/grpc-js';
import { CRI_LIMITS, type ServerBudget } from '../unary/server-budget.ts';
import { SessionPeers } from '../unary/grpc-js/session-owner.ts';
import { createRawServer, rawMessage } from '../unary/grpc-js/raw-server.ts';
import { serveUnary } from '../unary/grpc-js/serve.ts';
import { type LocalHandlers, type LocalServerOptions, unaryEnded } from './interceptors.ts';

/** The grpc-js server of the local server. */
export interface JsServer {
  /** @param peer the process of the client that the connection is for, if it is known */
  accept(connection: Duplex, peer: number | undefined): void;
  close(): void;
}

/** Serves these handlers with grpc-js. */
export function createJsServer(
  handlers: LocalHandlers,
  { log, counters }: LocalServerOptions,
  budget: ServerBudget,
): JsServer {
  const { server } = createRawServer(counters, CRI_LIMITS, budget);
  for (const [path, handler] of handlers) {
    const ended = unaryEnded(path, { log, counters });
    const serve = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveUnary(handler, call, respond, { log, budget, ended });
    server.register(path, serve, rawMessage, rawMessage, 'unary');
  }
  const peers = new SessionPeers(server);
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  return {
    accept: (connection, peer) => peers.accept(peer, () => injector.injectConnection(connection)),
    close() {
      injector.destroy();
      server.forceShutdown();
    },
  };
}
