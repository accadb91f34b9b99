import type { RawUnaryHandler } from '../../grpc/index.ts';
import { SHIM_STATUS_PATH, withInfo } from '../../runtime/index.ts';
import { INFO_KEY } from './pod-sandbox-status.ts';
import { type Interceptors, type LocalHandlers, noInterceptors } from './serving/index.ts';
import type { Program } from './status.ts';

/**
 * Returns the interceptors and handlers of a shim that forwards every call. It answers one call of its own, which no
 * runtime has, so that installer and doctor recognise it.
 */
export function passThroughHandlers(program: Program): {
  readonly interceptors: Interceptors;
  readonly handlers: LocalHandlers;
} {
  const handlers = new Map<string, RawUnaryHandler>([[SHIM_STATUS_PATH, shimStatus(program)]]);
  return { interceptors: { ...noInterceptors, handlers }, handlers };
}

/** Answers {@link SHIM_STATUS_PATH} with the version, the number of clients and the readiness. */
export function shimStatus({ version, readiness, connections }: Program): RawUnaryHandler {
  return async () => {
    const report = await readiness();
    return withInfo(Buffer.alloc(0), INFO_KEY, JSON.stringify({ version, connections: connections(), ...report }));
  };
}
