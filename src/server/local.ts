import { type Duplex, duplexPair } from 'node:stream';
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import type { Counters, Log } from '../observe/index.ts';
import { MAX_MESSAGE_BYTES } from '../runtime/index.ts';
import type { CallTrace, RawUnaryHandler } from './call.ts';
import { callFields } from './routes.ts';
import { isUnexpected, statusOf, tracesOf } from './status.ts';

/** The gRPC server in this process in which intercepted calls end. */
export interface LocalServer {
  /** A new connection to it: bytes of HTTP/2, as a socket to any gRPC server. */
  connect(): Duplex;
  /** Ends all its connections at once. */
  close(): void;
}

export interface LocalServerOptions {
  readonly log: Log;
  readonly counters: Counters;
}

const identity = (bytes: Buffer): Buffer => bytes;

/** Serves these handlers, by path. Each call is counted and leaves one line in the log. */
export function createLocalServer(
  handlers: ReadonlyMap<string, RawUnaryHandler>,
  { log, counters }: LocalServerOptions,
): LocalServer {
  const server = new Server({
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.enable_channelz': 0,
  });
  for (const [path, handler] of handlers) {
    const serve = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveCall(path, handler, call, respond, { log, counters });
    server.register(path, serve, identity, identity, 'unary');
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

/** Never rejects: whatever happens ends as the status of the call. */
async function serveCall(
  path: string,
  handler: RawUnaryHandler,
  call: ServerUnaryCall<Buffer, Buffer>,
  respond: sendUnaryData<Buffer>,
  { log, counters }: LocalServerOptions,
): Promise<void> {
  const start = performance.now();
  const trace: CallTrace = { fields: {}, backendMs: 0 };
  let code: number = status.OK;
  try {
    respond(null, await handler(call, trace));
  } catch (error) {
    if (isUnexpected(error))
      log.error({ method: path, ...tracesOf(error) }, 'a call has failed by a fault of the shim');
    const failure = statusOf(error);
    code = failure.code;
    respond(failure);
  }
  // The client has gone: whatever we answered, this is what the call ended with.
  if (call.cancelled) code = isPast(call.getDeadline()) ? status.DEADLINE_EXCEEDED : status.CANCELLED;
  const elapsed = performance.now() - start;
  counters.interceptedCall(path, code, elapsed);
  log.info(callFields(trace, path, code, elapsed - trace.backendMs), 'intercepted call');
}

const isPast = (deadline: Date | number): boolean => Number(deadline) <= Date.now();
