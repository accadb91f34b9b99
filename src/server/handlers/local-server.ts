import { type Duplex, duplexPair } from 'node:stream';
import { ServerCredentials, type ServerUnaryCall, type sendUnaryData } from '@grpc/grpc-js';
import type { Counters, Log } from '../../observe/index.ts';
import {
  type EndedCall,
  type RawUnaryHandler,
  callFields,
  createRawServer,
  rawMessage,
  serveUnary,
} from '../../grpc/index.ts';

/** The gRPC server in this process that handles intercepted calls. */
export interface LocalServer {
  /** Opens a connection to it: an HTTP/2 byte stream, like a socket to any gRPC server. */
  connect(): Duplex;
  /** Closes all its connections at once. */
  close(): void;
}

export interface LocalServerOptions {
  readonly log: Log;
  readonly counters: Counters;
}

/** Serves these handlers, by path. Each call is counted and logged. */
export function createLocalServer(
  handlers: ReadonlyMap<string, RawUnaryHandler>,
  { log, counters }: LocalServerOptions,
): LocalServer {
  const server = createRawServer();
  for (const [path, handler] of handlers) {
    const ended = (call: EndedCall): void => {
      counters.interceptedCall(path, call.code, call.elapsedMs, call.trace.backendMs);
      log.info(callFields(call.trace, path, call.code, call.elapsedMs - call.trace.backendMs), 'intercepted call');
    };
    const serve = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveUnary(path, handler, call, respond, { log, ended });
    server.register(path, serve, rawMessage, rawMessage, 'unary');
  }
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  return {
    connect() {
      const [ours, theirs] = duplexPair();
      injector.injectConnection(ours);
      return theirs;
    },
    close() {
      injector.destroy();
      server.forceShutdown();
    },
  };
}
