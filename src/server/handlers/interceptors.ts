import { status } from '@grpc/grpc-js';
import type { Counters, Log } from '../../observe/index.ts';
import { type CallTrace, type RawUnaryHandler, callFields } from '../../grpc/index.ts';
import type { Exchange, Interception, MaybePromise } from '../proxy/index.ts';
/**
 * What a held response becomes, or undefined for what it is. May add ids to the trace.
 * See {@link Interception.amend}.
 */
export type Amendment = (exchange: Exchange, trace: CallTrace) => MaybePromise<Uint8Array | undefined>;

/** A call that passes, and is looked at on its way back. */
export interface AmendedCall {
  readonly amendment: Amendment;
  /** The level of its line in the log: kubelet asks for the status of every container all the time. */
  readonly logLevel: 'debug' | 'info';
}

/** The calls that the shim acts on, by path (`/runtime.v1.RuntimeService/UpdateContainerResources`). */
export interface Interceptors {
  /** Calls that end in the shim. */
  readonly handlers: ReadonlyMap<string, RawUnaryHandler>;
  /** Calls that pass, and whose response is added to. */
  readonly amendments: ReadonlyMap<string, AmendedCall>;
}

/** Calls of containerd that send what happens for as long as somebody listens; who does begins anew when they end. */
const watches: ReadonlySet<string> = new Set([
  '/runtime.v1.RuntimeService/GetContainerEvents',
  '/containerd.services.events.v1.Events/Subscribe',
  '/grpc.health.v1.Health/Watch',
]);

/** Acts on nothing: every call passes. */
export const noInterceptors: Interceptors = { handlers: new Map(), amendments: new Map() };

export interface InterceptionReport {
  readonly log: Log;
  readonly counters: Counters;
  /** Whether calls whose line is for debugging leave one. */
  readonly debug: boolean;
}

/**
 * The switch's view of a table of interceptors. A path that is in both maps is handled. Each amended call is counted and
 * leaves one line in the log, as a handled one does.
 */
export function interceptionOf(
  { handlers, amendments }: Interceptors,
  { log, counters, debug }: InterceptionReport,
): Interception {
  const report = (call: AmendedCall, { path, backendMs }: Exchange, trace: CallTrace, start: number): void => {
    const shimMs = performance.now() - start;
    counters.interceptedCall(path, status.OK, backendMs + shimMs, backendMs);
    if (debug || call.logLevel !== 'debug')
      log[call.logLevel](callFields(trace, path, status.OK, shimMs), 'intercepted call');
  };
  return {
    route: (path) => (handlers.has(path) ? 'handle' : amendments.has(path) ? 'amend' : 'pass'),
    isWatch: (path) => watches.has(path),
    amend(exchange) {
      const call = amendments.get(exchange.path);
      if (call === undefined) return undefined;
      const start = performance.now();
      const trace: CallTrace = { fields: {}, backendMs: exchange.backendMs };
      const answer = call.amendment(exchange, trace);
      if (answer instanceof Promise) return answer.finally(() => report(call, exchange, trace, start));
      report(call, exchange, trace, start);
      return answer;
    },
  };
}
