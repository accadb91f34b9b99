import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { type Messages, decode } from '../../runtime/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';

/** Decodes a copy of a message. Undefined, and counted, when it cannot be: it is then forwarded as it came. */
export function decodeOrUndefined<Name extends keyof Messages>(
  context: { readonly failOpen: FailOpen },
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  return orUndefined(context, name, () => decode(name, bytes));
}

/**
 * The most that an update may take. Kubernetes lets the annotations of an object come to 256 KiB, and CRI's resources take some
 * hundred bytes. Decoding is one piece of work, and nothing else goes on meanwhile: this much takes 0.1 s where it is nothing but
 * keys of a map, 16 MiB, the most that gRPC is set to take, would take 3 s.
 */
const MAX_UPDATE_BYTES = 512 * 1024;

/**
 * {@link decodeOrUndefined} for an update of resources. Throws INVALID_VALUE for one that is too long: passed on unread it could
 * set any limit.
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

/** The same for a message that is read in a way of its own. */
export function orUndefined<Message>(
  context: { readonly failOpen: FailOpen },
  name: keyof Messages,
  read: () => Message,
): Message | undefined {
  try {
    return read();
  } catch (error) {
    context.failOpen('undecodable', name, error);
    return undefined;
  }
}
