import { type Duplex, duplexPair } from 'node:stream';
import {
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import type { Counters, Log } from '../../../observe/index.ts';
import {
  type EndedCall,
  type RawStreamHandler,
  type RawUnaryHandler,
  callFields,
  CRI_LIMITS,
  SessionPeers,
  createRawServer,
  rawMessage,
  serveStream,
  serveUnary,
} from '../../../grpc/index.ts';

const CANCELLED: number = status.CANCELLED;

/** The gRPC server in this process that handles intercepted calls. */
export interface LocalServer {
  /**
   * Opens a connection to it: an HTTP/2 byte stream, like a socket to any gRPC server.
   * @param peer the process of the client that the connection is for, if it is known
   */
  connect(peer?: number): Duplex;
  /** Closes all its connections at once. */
  close(): void;
}

export interface LocalServerOptions {
  readonly log: Log;
  readonly counters: Counters;
}

/** The handlers of the local server, by path. */
export interface LocalHandlers {
  readonly unary: ReadonlyMap<string, RawUnaryHandler>;
  /** Calls with a stream of responses. */
  readonly streams: ReadonlyMap<string, RawStreamHandler>;
}

/** Serves these handlers. Each unary call is counted and logged; streams count as forwarded calls. */
export function createLocalServer(
  { unary, streams }: LocalHandlers,
  { log, counters }: LocalServerOptions,
): LocalServer {
  const { server, budget } = createRawServer(counters, CRI_LIMITS);
  for (const [path, handler] of streams) {
    const serve = (call: ServerWritableStream<Buffer, Buffer>): void =>
      void serveStream(path, handler, call, { log, budget }).then((code) =>
        counters.passedCall(path, code === CANCELLED ? 'cancelled' : 'answered'),
      );
    server.register(path, serve, rawMessage, rawMessage, 'serverStream');
  }
  for (const [path, handler] of unary) {
    const ended = (call: EndedCall): void => {
      counters.interceptedCall(path, call.code, call.elapsedMs, call.trace.backendMs);
      log.info(callFields(call.trace, path, call.code, call.elapsedMs - call.trace.backendMs), 'intercepted call');
    };
    const serve = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveUnary(path, handler, call, respond, { log, budget, ended });
    server.register(path, serve, rawMessage, rawMessage, 'unary');
  }
  const peers = new SessionPeers(server);
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  return {
    connect(peer) {
      const [ours, theirs] = duplexPair();
      peers.accept(peer, () => injector.injectConnection(ours));
      return theirs;
    },
    close() {
      injector.destroy();
      server.forceShutdown();
    },
  };
}
