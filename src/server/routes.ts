import type { RawUnaryHandler } from './call.ts';
import type { Exchange, Interception } from './interception.ts';

/** What to append to a held response, or undefined for nothing. See {@link Interception.amend}. */
export type Amendment = (exchange: Exchange) => Promise<Uint8Array | undefined>;

/** The calls that the shim acts on, by path (`/runtime.v1.RuntimeService/UpdateContainerResources`). */
export interface Interceptors {
  /** Calls that end in the shim. */
  readonly handlers: ReadonlyMap<string, RawUnaryHandler>;
  /** Calls that pass, and whose response is added to. */
  readonly amendments: ReadonlyMap<string, Amendment>;
}

/** Acts on nothing: every call passes. */
export const noInterceptors: Interceptors = { handlers: new Map(), amendments: new Map() };

/** The switch's view of a table of interceptors. A path that is in both maps is handled. */
export function interceptionOf({ handlers, amendments }: Interceptors): Interception {
  return {
    route: (path) => (handlers.has(path) ? 'handle' : amendments.has(path) ? 'amend' : 'pass'),
    amend: async (exchange) => amendments.get(exchange.path)?.(exchange),
  };
}
