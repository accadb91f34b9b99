import { createLocalCalls, type LocalCalls, type LocalHandlers } from '../local-calls.ts';
import { CRI_LIMITS } from '../unary/server-budget.ts';
import { type LocalServerOptions, unaryEnded } from './interceptors.ts';

/** Serves these handlers of the CRI socket, for the calls of all connections. Each call is counted and logged. */
export const createLocalServer = (handlers: LocalHandlers, options: LocalServerOptions): LocalCalls =>
  createLocalCalls({
    ...options,
    handlers,
    limits: CRI_LIMITS,
    endedOf: (path) => unaryEnded(path, options),
    loadServer: async (budget) => {
      const { createJsServer } = await import('./js-server.ts');
      return createJsServer(handlers, options, budget);
    },
  });
