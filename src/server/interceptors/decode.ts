import { type Messages, decode } from '../../runtime/index.ts';
import type { ResizeContext } from '../../sandbox/index.ts';

/** Decodes a copy of a message. Undefined, and counted, when it cannot be: it is then forwarded as it came. */
export function decodeOrUndefined<Name extends keyof Messages>(
  context: ResizeContext,
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  return orUndefined(context, name, () => decode(name, bytes));
}

/** The same for a message that is read in a way of its own. */
export function orUndefined<Message>(
  context: ResizeContext,
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
