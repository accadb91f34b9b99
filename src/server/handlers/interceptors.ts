import { Code, type Counters, type Log } from '../../core/index.ts';
import type { DelayedCall, Exchange, Interception, MaybePromise } from '../proxy/interception.ts';
import { type CallTrace, callFields, type RawUnaryHandler } from '../unary/call.ts';
import type { EndedCall } from '../unary/serve.ts';

/**
 * Returns the amended response, or undefined to leave it unchanged. May add ids to the trace. See
 * {@link Interception.amend}.
 */
export type Amendment = (exchange: Exchange, trace: CallTrace) => MaybePromise<Uint8Array | undefined>;

/**
 * Returns the amended message of a stream, or undefined to leave it unchanged. See {@link Interception.amendMessage}.
 */
export type MessageAmendment = (message: Uint8Array) => MaybePromise<Uint8Array | undefined>;

/** Returns what the request waits for; undefined to forward it at once. See {@link Interception.delay}. */
export type Delay = (call: DelayedCall) => Promise<void> | undefined;

/** A call that is forwarded and whose response may be amended. */
export interface AmendedCall {
  readonly amendment: Amendment;
  /**
   * Prepares the amendment of one call while the backend works. Returns the amendment of its response; undefined for
   * {@link amendment}. Must not throw.
   */
  readonly prepare?: (request: Uint8Array) => Amendment | undefined;
  /** The log level of its log line: kubelet requests the status of every container continuously. */
  readonly logLevel: 'debug' | 'info';
}

/** The calls that the shim acts on, by path (`/runtime.v1.RuntimeService/UpdateContainerResources`). */
export interface Interceptors {
  /** Calls that the shim handles. */
  readonly handlers: ReadonlyMap<string, RawUnaryHandler>;
  /** Calls that are forwarded and whose response is amended. */
  readonly amendments: ReadonlyMap<string, AmendedCall>;
  /** Calls with a stream of responses that are forwarded and whose messages are amended one by one. */
  readonly streams: ReadonlyMap<string, MessageAmendment>;
  /** Calls of any kind, except handled ones, whose request is delayed. */
  readonly delays: ReadonlyMap<string, Delay>;
}

/** Calls of containerd that stream events until the client cancels. Clients start them again when they end. */
const watches: ReadonlySet<string> = new Set([
  '/runtime.v1.RuntimeService/GetContainerEvents',
  '/containerd.services.events.v1.Events/Subscribe',
  '/grpc.health.v1.Health/Watch',
]);

/** An empty table: every call is forwarded. */
export const noInterceptors: Interceptors = {
  handlers: new Map(),
  amendments: new Map(),
  streams: new Map(),
  delays: new Map(),
};

export interface InterceptionReport {
  readonly log: Log;
  readonly counters: Counters;
  /** Whether log lines of level debug are written. */
  readonly debug: boolean;
}

/**
 * Returns a table of interceptors as the proxy's {@link Interception}. A path in several maps is handled. Each amended
 * unary call is counted and logged, as handled calls are. Streams count as forwarded calls: they last for hours.
 */
export function interceptionOf(
  { handlers, amendments, streams, delays }: Interceptors,
  { log, counters, debug }: InterceptionReport,
): Interception {
  const report = (call: AmendedCall, { path, backendMs }: Exchange, trace: CallTrace, start: number): void => {
    const shimMs = performance.now() - start;
    counters.interceptedCall(path, Code.OK, backendMs + shimMs, backendMs);
    if (debug || call.logLevel !== 'debug')
      log[call.logLevel](callFields(trace, path, Code.OK, shimMs), 'intercepted call');
  };
  const amend = (call: AmendedCall, amendment: Amendment, exchange: Exchange): ReturnType<Amendment> => {
    const start = performance.now();
    const trace: CallTrace = { fields: {}, backendMs: exchange.backendMs };
    const answer = amendment(exchange, trace);
    if (answer instanceof Promise) return answer.finally(() => report(call, exchange, trace, start));
    report(call, exchange, trace, start);
    return answer;
  };
  return {
    route(path) {
      if (handlers.has(path)) return 'handle';
      if (amendments.has(path)) return 'amend';
      return streams.has(path) ? 'amend-each' : 'pass';
    },
    isWatch: (path) => watches.has(path),
    isDelayed: (path) => delays.has(path),
    delay: (call) => delays.get(call.path)?.(call),
    amend(exchange) {
      const call = amendments.get(exchange.path);
      return call && amend(call, call.amendment, exchange);
    },
    prepare(path, request) {
      const call = amendments.get(path);
      const prepared = call?.prepare?.(request);
      return call && prepared && ((exchange) => amend(call, prepared, exchange));
    },
    amendMessage: (path, message) => streams.get(path)?.(message),
  };
}

export interface LocalServerOptions {
  readonly log: Log;
  readonly counters: Counters;
}

/** Calls that only read: Status, RuntimeConfig and so on. */
const READS = /(?:Status|Stats|Config)$/;

/** Returns what counts and logs the handled calls of a path. Successful reads are logged as debug, as amended ones. */
export const unaryEnded = (path: string, { log, counters }: LocalServerOptions): ((call: EndedCall) => void) => {
  const isRead = READS.test(path);
  return ({ trace, code, elapsedMs }) => {
    counters.interceptedCall(path, code, elapsedMs, trace.backendMs);
    const level = isRead && code === Code.OK ? 'debug' : 'info';
    log[level](callFields(trace, path, code, elapsedMs - trace.backendMs), 'intercepted call');
  };
};
