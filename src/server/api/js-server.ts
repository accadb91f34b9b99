import { once } from 'node:events';
import { Metadata, type ServerUnaryCall, type ServerWritableStream, type sendUnaryData } from '@grpc/grpc-js';
import type { Counters, Log } from '../../core/index.ts';
import type { ResizeWatch } from '../../sandbox/index.ts';
import type { JsServer, LocalHandlers } from '../local-calls.ts';
import type { CallTrace } from '../unary/call.ts';
import { createRawServer, rawMessage } from '../unary/grpc-js/raw-server.ts';
import { codeFor, jsFailureOf, ServedCall, serveUnary, withinBudget } from '../unary/grpc-js/serve.ts';
import { ownerOf } from '../unary/grpc-js/sessions.ts';
import { type EndedCall, hasLeft } from '../unary/serve.ts';
import { API_LIMITS, type ServerBudget } from '../unary/server-budget.ts';
import { encodeEvent, type ServiceOptions, WATCH_PATH, watchResizes } from './service.ts';

export interface JsServerOptions extends ServiceOptions {
  readonly log: Log;
  readonly counters: Counters;
  readonly budget: ServerBudget;
  /** Returns what counts and logs the calls of a path that have ended. */
  readonly endedOf: (path: string) => (call: EndedCall) => void;
}

/** Serves WatchResizes and these handlers with grpc-js. */
export function createJsServer(handlers: LocalHandlers, options: JsServerOptions): JsServer {
  const { log, counters, budget, endedOf } = options;
  const raw = createRawServer(counters, API_LIMITS, budget);
  const { server } = raw;
  for (const [path, handler] of handlers) {
    const ended = endedOf(path);
    const serve = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveUnary(handler, call, respond, { log, budget, ended });
    server.register(path, serve, rawMessage, rawMessage, 'unary');
  }
  const watch = (call: ServerWritableStream<Buffer, Buffer>): void =>
    void serveWatch(options, call, endedOf(WATCH_PATH));
  server.register(WATCH_PATH, watch, rawMessage, rawMessage, 'serverStream');
  return raw;
}

/** Serves WatchResizes. Never rejects: every error becomes the call's status. */
async function serveWatch(
  options: JsServerOptions,
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
  options: ServiceOptions,
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
