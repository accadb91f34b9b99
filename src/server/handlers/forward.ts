import { Code, Reason, ShimError, steadyNow } from '../../core/index.ts';
import { type Backend, type Messages, decode } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { type CallTrace, type HandlerCall, type RawUnaryHandler, inBackend, onBehalfOf } from '../unary/call.ts';
import type { FailOpen } from '../../sandbox/index.ts';

/**
 * Makes an intercepted call at the backend with the same bytes, metadata and deadline. Cancels it if the caller
 * cancels.
 */
export function forward(backend: Backend, call: HandlerCall, trace: CallTrace): Promise<Buffer> {
  return inBackend(trace, () => backend.call(call.path, call.request, onBehalfOf(call)));
}

/**
 * How long the runtime may take for an update: kubelet's own limit. Without it, a caller without a deadline would hold
 * the pod's lock while a runtime hangs.
 */
const LONGEST_UPDATE_MS = 120_000;

/** Forwards a call that changes a pod. The caller's cancellation does not end it: it is completed or rolled back. */
export function forwardToTheEnd(backend: Backend, call: HandlerCall, trace: CallTrace): Promise<Buffer> {
  const deadline = Math.min(call.deadline, steadyNow() + LONGEST_UPDATE_MS);
  const options = { metadata: call.metadata, deadline };
  return inBackend(trace, () => backend.call(call.path, call.request, options));
}

/**
 * Handles a call whose response is amended but whose messages are compressed. The proxy cannot read those; the gRPC
 * server and client decompress them.
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
 * The largest accepted update. Kubernetes limits an object's annotations to 256 KiB, and CRI's resources take some
 * hundred bytes. Decoding blocks the event loop: a message of this size that contains only map keys takes 0.1 s, one of
 * 16 MiB (the gRPC limit) 3 s.
 */
const MAX_UPDATE_BYTES = 512 * 1024;

/**
 * Decodes an update of resources like {@link decodeOrUndefined}. Throws INVALID_VALUE if it is too long: forwarded
 * unread, it could set any limit.
 */
export function decodeUpdate<Name extends keyof Messages>(
  failOpen: FailOpen,
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  if (bytes.length <= MAX_UPDATE_BYTES) return decodeOrUndefined(failOpen, name, bytes);
  const message = `${name}: ${bytes.length} bytes: an update has at most ${MAX_UPDATE_BYTES} bytes`;
  throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { asked: String(bytes.length) });
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
