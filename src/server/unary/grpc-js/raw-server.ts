import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { bufferUsed, Code, type Counters } from '../../../core/index.ts';
import { MAX_MESSAGE_BYTES } from '../../../runtime/index.ts';
import { GRPC_LIMITS, REQUESTS_FULL, ServerBudget, type ServerLimits } from '../server-budget.ts';
import { ENCODING_HEADER, isEncoding } from './decompress.ts';
import { keepHandles, onSession, setOwner } from './sessions.ts';

/** Serializes and deserializes messages that stay bytes. */
export const rawMessage = (bytes: Buffer): Buffer => bytes;

/** A gRPC server of the shim. */
export interface RawServer {
  readonly server: Server;
  /** For {@link serveUnary}. */
  readonly budget: ServerBudget;
  /**
   * Serves a connection.
   * @param peer the process of the client, if it is known
   */
  accept(connection: Duplex, peer?: number): void;
  /** Ends all connections and calls. */
  close(): void;
}

/**
 * Returns a gRPC server without handlers whose responses are as large as CRI's clients accept. A budget limits the
 * requests of all clients.
 */
export function createRawServer(
  counters: Counters,
  limits: ServerLimits,
  budget = new ServerBudget(limits, (what) => counters.refused(what)),
): RawServer {
  const server = new Server({
    'grpc.max_receive_message_length': limits.requestLimit,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': GRPC_LIMITS.streams,
    'grpc.enable_channelz': 0,
  });
  guardStreams(server, budget);
  let accepted: number | undefined;
  onSession(server, (session) => {
    keepHandles(session);
    setOwner(session, accepted);
  });
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  return {
    server,
    budget,
    accept(connection, peer) {
      // Creates the session before it returns.
      accepted = peer;
      injector.injectConnection(connection);
    },
    close() {
      injector.destroy();
      server.forceShutdown();
    },
  };
}

/** How long the client has for reading the status of a refused call before its stream is reset. */
const RESET_DELAY_MS = 100;

/** Handles a new HTTP/2 stream. */
type StreamHandler = (interceptors: unknown, stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;

/** The listener of grpc-js 1.14 for new streams. It is private, but no public API runs before it. */
interface StreamListener {
  _streamHandler: StreamHandler;
}

/**
 * Stands between HTTP/2 and grpc-js:
 * - Contains errors in grpc-js's handling of streams. grpc-js responds to a call that it rejects (no gRPC content type,
 *   unknown method) even if the client has reset it in the same read. That throws in an event listener, which would end
 *   the process.
 * - Limits the bytes of requests that wait for their end, over all clients.
 * - Leaves decompression to {@link serveUnary}.
 */
function guardStreams(server: Server, budget: ServerBudget): void {
  const guarded = server as unknown as StreamListener;
  const handle = guarded._streamHandler.bind(server);
  guarded._streamHandler = (interceptors, stream, headers) => {
    // A reset with an error code is emitted as an error, also for a stream that grpc-js does not see.
    stream.on('error', () => undefined);
    if (stream.destroyed || stream.closed) return;
    const respond = stream.respond.bind(stream);
    stream.respond = (...of) => contained(stream, () => respond(...of));
    const sendTrailers = stream.sendTrailers.bind(stream);
    stream.sendTrailers = (...of) => contained(stream, () => sendTrailers(...of));
    moveEncoding(headers);
    limitRequest(stream, budget);
    contained(stream, () => handle(interceptors, stream, headers));
  };
}

/** Runs an action. If it throws, resets its stream: other streams are not affected. */
function contained(stream: ServerHttp2Stream, action: () => void): void {
  try {
    action();
  } catch {
    stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }
}

function moveEncoding(headers: IncomingHttpHeaders): void {
  const { 'grpc-encoding': encoding } = headers;
  // A client cannot set it.
  Reflect.deleteProperty(headers, ENCODING_HEADER);
  if (!isEncoding(encoding)) return;
  delete headers['grpc-encoding'];
  headers[ENCODING_HEADER] = encoding;
}

/** Counts a request's bytes while they arrive. Ends the call if the requests of all clients hold too many. */
function limitRequest(stream: ServerHttp2Stream, budget: ServerBudget): void {
  let taken = 0;
  let isRefused = false;
  const over = (): void => {
    budget.giveBack(taken);
    taken = 0;
  };
  stream.on('data', (part: Buffer) => {
    const bytes = part.length + GRPC_LIMITS.partOverhead;
    bufferUsed(part.length);
    if (stream.closed || isRefused) return;
    if (budget.take(bytes, taken)) {
      taken += bytes;
      return;
    }
    isRefused = true;
    over();
    refuse(stream);
  });
  stream.once('end', over).once('close', over);
}

function refuse(stream: ServerHttp2Stream): void {
  const trailers = { 'grpc-status': Code.RESOURCE_EXHAUSTED, 'grpc-message': REQUESTS_FULL };
  if (!stream.headersSent)
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...trailers }, { endStream: true });
  // Later parts are dropped. The reset comes later: at once, it would discard the status.
  stream.removeAllListeners('data').resume();
  setTimeout(() => stream.close(constants.NGHTTP2_NO_ERROR), RESET_DELAY_MS).unref();
}
