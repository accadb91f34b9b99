import type { ServerUnaryCall, sendUnaryData } from '@grpc/grpc-js';
import type { JsServer, LocalHandlers } from '../local-calls.ts';
import { createRawServer, rawMessage } from '../unary/grpc-js/raw-server.ts';
import { serveUnary } from '../unary/grpc-js/serve.ts';
import { CRI_LIMITS, type ServerBudget } from '../unary/server-budget.ts';
import { type LocalServerOptions, unaryEnded } from './interceptors.ts';

/** Serves these handlers with grpc-js. */
export function createJsServer(
  handlers: LocalHandlers,
  { log, counters }: LocalServerOptions,
  budget: ServerBudget,
): JsServer {
  const raw = createRawServer(counters, CRI_LIMITS, budget);
  for (const [path, handler] of handlers) {
    const ended = unaryEnded(path, { log, counters });
    const serve = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void =>
      void serveUnary(handler, call, respond, { log, budget, ended });
    raw.server.register(path, serve, rawMessage, rawMessage, 'unary');
  }
  return raw;
}
