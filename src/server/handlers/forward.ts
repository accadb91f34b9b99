import { type Backend, decode, type Messages } from '../../runtime/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';
import { type CallTrace, type HandlerCall, inBackend, onBehalfOf, type RawUnaryHandler } from '../unary/call.ts';
import type { Amendment } from './interceptors.ts';

/**
 * Makes an intercepted call at the backend with the same bytes, metadata and deadline. Cancels it if the caller
 * cancels.
 */
export function forward(backend: Backend, call: HandlerCall, trace: CallTrace): Promise<Buffer> {
  return inBackend(trace, () => backend.call(call.path, call.request, onBehalfOf(call)));
}

/**
 * Handles a compressed call whose response is amended. The proxy cannot read compressed messages; the gRPC server and
 * client decompress them.
 */
export function amendedHandler(backend: Backend, amendment: Amendment): RawUnaryHandler {
  return async (call, trace) => {
    const response = await forward(backend, call, trace);
    const exchange = { path: call.path, request: call.request, response, backendMs: trace.backendMs };
    return Buffer.from((await amendment(exchange, trace)) ?? response);
  };
}

/**
 * Decodes a copy of a message. If that fails, counts it and returns undefined: the message is then forwarded unchanged.
 */
export function decodeOrUndefined<Name extends keyof Messages>(
  failOpen: FailOpen,
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  return orUndefined(failOpen, name, () => decode(name, bytes));
}

/**
 * Runs `read`. If that fails, counts it and returns undefined: the message is then forwarded unchanged.
 * @param name of the CRI message
 */
export function orUndefined<Message>(failOpen: FailOpen, name: string, read: () => Message): Message | undefined {
  try {
    return read();
  } catch (error) {
    failOpen('undecodable', name, error);
    return undefined;
  }
}
