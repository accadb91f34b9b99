import type { Socket } from 'node:net';
import { type Counters, type Log, oncePerKey } from '../../core/index.ts';
import { type ClientConnections, createClientConnections, type Patience } from '../client-connections.ts';
import { createLocalCalls } from '../local-calls.ts';
import { refuseConnection, SHARED_LIMITS, serveConnection } from '../proxy/serve.ts';
import { SharedBudget } from '../proxy/shared-budget.ts';
import { proxyReport } from '../proxy-report.ts';
import { callFields } from '../unary/call.ts';
import { tooManyConnections } from '../unary/connection-room.ts';
import type { EndedCall } from '../unary/serve.ts';
import { API_LIMITS } from '../unary/server-budget.ts';
import { type ServiceOptions, unaryHandlers, WATCH_PATH } from './service.ts';

/** kubelet waits for the next shim while the clients of this one close their connections. */
const PATIENCE: Patience = { idle: 200, unread: 1000 };

/** The gRPC server of the resize API. */
export interface ResizeServer extends Pick<ClientConnections, 'accept'> {
  /** Waits for running calls for `graceMs`, then cuts them off. */
  close(graceMs: number): Promise<void>;
}

export interface ResizeServerOptions extends ServiceOptions {
  /** Returns the process of a client, as far as that is known. */
  readonly peerOf: (connection: Socket) => number | undefined;
  readonly log: Log;
  readonly counters: Counters;
  /** The path of the socket, for the log. */
  readonly path: string;
}

/**
 * Creates the server. Each call that it serves is counted and logged. It is the server of handled CRI calls without a
 * backend: every call ends in this process.
 */
export function createResizeServer(options: ResizeServerOptions): ResizeServer {
  const { peerOf, log, counters } = options;
  const handlers = unaryHandlers(options);
  const endedOf =
    (path: string) =>
    ({ trace, code, elapsedMs }: EndedCall): void => {
      counters.interceptedCall(path, code, elapsedMs);
      log.info(callFields(trace, path, code, elapsedMs), 'resize API call');
    };
  const local = createLocalCalls({
    ...{ handlers, limits: API_LIMITS, endedOf, log, counters },
    loadServer: async (budget) => {
      const { createJsServer } = await import('./js-server.ts');
      return createJsServer(handlers, { ...options, budget, endedOf });
    },
  });
  const observer = proxyReport({ log, counters, logPassedCalls: false, isFirst: oncePerKey() });
  const shared = new SharedBudget(SHARED_LIMITS);
  const { requestLimit } = API_LIMITS;
  const clients = createClientConnections({
    limit: API_LIMITS.connections,
    serve: (client, parts) => serveConnection(client, { ...parts, observer, shared, requestLimit }),
    refuse: (client) => refuseConnection(client, shared),
    peerOf,
    tooMany: tooManyConnections(options.path, log, counters),
    local,
    interception: {
      route: () => 'handle',
      isUnary: (path) => handlers.has(path),
      isWatch: (path) => path === WATCH_PATH,
      amend: () => undefined,
      amendMessage: () => undefined,
    },
  });
  return {
    accept: (client) => clients.accept(client),
    async close(graceMs) {
      const cut = await clients.shutdown(graceMs, PATIENCE);
      if (cut > 0) log.warn({ listen: options.path, cut }, 'calls of the resize API were cut off');
      local.close();
    },
  };
}
