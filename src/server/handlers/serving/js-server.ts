import type { Duplex } from 'node:stream';
import { ServerCredentials, type ServerUnaryCall, type ServerWritableStream, type sendUnaryData } from '@grpc/grpc-js';
import { Code } from '../../../core/grpc/index.ts';
import { CRI_LIMITS, type ServerBudget } from '../../../grpc/index.ts';
import { SessionPeers, createRawServer, rawMessage, serveStream, serveUnary } from '../../../grpc/grpc-js/index.ts';
import { type LocalHandlers, type LocalServerOptions, unaryEnded } from './local-handlers.ts';

/** The grpc-js server of the local server. */
export interface JsServer {
  /** @param peer the process of the client that the connection is for, if it is known */
  accept(connection: Duplex, peer: number | undefined): void;
  close(): void;
}

/** Serves these handlers with grpc-js. */
export function createJsServer(
  { unary, streams }: LocalHandlers,
  { log, counters }: LocalServerOptions,
  budget: ServerBudget,
): JsServer {
  const { server } = createRawServer(counters, CRI_LIMITS, budget);
  for (const [path, handler] of streams) {
    const serve = (call: ServerWritableStream<Buffer, Buffer>): void =>
      void serveStream(path, handler, call, { log, budget }).then((code) =>
        counters.passedCall(path, code === Code.CANCELLED ? 'cancelled' : 'answered'),
      );
    server.register(path, serve, rawMessage, rawMessage, 'serverStream');
  }
  for (const [path, handler] of unary) {
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
