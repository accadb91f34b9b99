import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { Metadata, type ServerUnaryCall, type ServerWritableStream, type sendUnaryData } from '@grpc/grpc-js';
import { type Counters, type Log, within } from '../../core/index.ts';
import type { ResizeWatch } from '../../sandbox/index.ts';
import { type CallTrace, callFields } from '../unary/call.ts';
import { tooManyConnections } from '../unary/connection-room.ts';
import { createRawServer, type RawServer, rawMessage } from '../unary/grpc-js/raw-server.ts';
import { codeFor, jsFailureOf, ServedCall, serveUnary, withinBudget } from '../unary/grpc-js/serve.ts';
import { ownerOf, sessionLimit } from '../unary/grpc-js/sessions.ts';
import { type EndedCall, hasLeft } from '../unary/serve.ts';
import { API_LIMITS } from '../unary/server-budget.ts';
import { encodeEvent, methodPath, type ServiceOptions, unaryHandlers, watchResizes } from './service.ts';

/** The gRPC server of the resize API. */
export interface ResizeServer {
  /**
   * Serves an accepted connection.
   * @param peer the process of the client, if it is known
   */
  accept(connection: Duplex, peer?: number): void;
  /** Waits for running calls for `graceMs`, then cuts them off. */
  close(graceMs: number): Promise<void>;
}

export interface ResizeServerOptions extends ServiceOptions {
  readonly log: Log;
  readonly counters: Counters;
  /** The path of the socket, for the log. */
  readonly path: string;
}

/** Creates the server. Each call is counted and logged. */
export function createResizeServer(options: ResizeServerOptions): ResizeServer {
  const { path: socket, log, counters } = options;
  const limit = sessionLimit(API_LIMITS.connections, tooManyConnections(socket, log, counters));
  const raw = createRawServer(counters, API_LIMITS, undefined, limit);
  const { server, budget } = raw;
  const endedOf =
    (path: string) =>
    ({ trace, code, elapsedMs }: EndedCall): void => {
      counters.interceptedCall(path, code, elapsedMs);
      log.info(callFields(trace, path, code, elapsedMs), 'resize API call');
    };
  for (const [path, handler] of unaryHandlers(options)) {
    const ended = endedOf(path);
    const serve = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveUnary(handler, call, respond, { log, budget, ended });
    server.register(path, serve, rawMessage, rawMessage, 'unary');
  }
  const watchPath = methodPath('WatchResizes');
  const watch = (call: ServerWritableStream<Buffer, Buffer>): void =>
    void serveWatch({ ...options, budget }, call, endedOf(watchPath));
  server.register(watchPath, watch, rawMessage, rawMessage, 'serverStream');
  return {
    accept: (connection, peer) => raw.accept(connection, peer),
    async close(graceMs) {
      await within(graceMs, new Promise<void>((resolve) => server.tryShutdown(() => resolve())));
      raw.close();
    },
  };
}

/** Serves WatchResizes. Never rejects: every error becomes the call's status. */
async function serveWatch(
  options: ResizeServerOptions & Pick<RawServer, 'budget'>,
  call: ServerWritableStream<Buffer, Buffer>,
  ended: (call: EndedCall) => void,
): Promise<void> {
  const start = performance.now();
  const trace: CallTrace = { fields: {}, backendMs: 0 };
  const served = new ServedCall(call);
  let code = 0;
  try {
    await withinBudget(call, options.budget, () => stream(options, call, served, trace));
    call.end();
  } catch (error) {
    const failure = hasLeft(served, error) ? undefined : jsFailureOf(error, call.getPath(), options.log);
    code = failure?.code ?? code;
    if (failure !== undefined) call.emit('error', failure);
  }
  ended({ trace, code: codeFor(call, code), elapsedMs: performance.now() - start });
}

/** Sends events until the client cancels or the watch ends. Rejects with the watch's error. */
async function stream(
  options: ResizeServerOptions,
  call: ServerWritableStream<Buffer, Buffer>,
  served: ServedCall,
  trace: CallTrace,
): Promise<void> {
  const watch = await watchResizes(options, served, ownerOf(call), trace);
  if (call.cancelled) watch.end();
  call.once('cancelled', () => watch.end());
  // Sends headers at once: they tell the client that it misses no event from now on.
  call.sendMetadata(new Metadata());
  for await (const event of watch) if (!call.write(encodeEvent(options, event))) await drained(call, watch);
}

/**
 * Waits until the client has read. Events queue in the watch meanwhile; if that ends (too many events), the wait ends
 * too.
 */
async function drained(call: ServerWritableStream<Buffer, Buffer>, watch: ResizeWatch): Promise<void> {
  const over = new AbortController();
  await Promise.race([once(call, 'drain', { signal: over.signal }), watch.ended]);
  over.abort();
}
