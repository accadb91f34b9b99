import { Code, Reason, ShimError } from '../../../core/errors/index.ts';
import { type Messages, decode } from '../../../runtime/index.ts';
import type { FailOpen } from '../../../sandbox/index.ts';

/**
 * Decodes a copy of a message. If that fails, counts it and returns undefined: the message is then forwarded unchanged.
 */
export function decodeOrUndefined<Name extends keyof Messages>(
  context: { readonly failOpen: FailOpen },
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  return orUndefined(context, name, () => decode(name, bytes));
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
  context: { readonly failOpen: FailOpen },
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  if (bytes.length <= MAX_UPDATE_BYTES) return decodeOrUndefined(context, name, bytes);
  const message = `${name}: ${bytes.length} bytes: an update has at most ${MAX_UPDATE_BYTES} bytes`;
  throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { asked: String(bytes.length) });
}

/**
 * Runs `read`. If that fails, counts it and returns undefined: the message is then forwarded unchanged.
 * @param name of the CRI message
 */
export function orUndefined<Message>(
  context: { readonly failOpen: FailOpen },
  name: string,
  read: () => Message,
): Message | undefined {
  try {
    return read();
  } catch (error) {
    context.failOpen('undecodable', name, error);
    return undefined;
  }
}
