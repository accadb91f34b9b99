import { type Messages, decode } from '../../runtime/index.ts';
import type { ResizeContext } from '../../sandbox/index.ts';

/** Decodes a copy of a message. Undefined, and counted, when it cannot be: it is then forwarded as it came. */
export function decodeOrUndefined<Name extends keyof Messages>(
  context: ResizeContext,
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  try {
    return decode(name, bytes);
  } catch (error) {
    context.failOpen('undecodable', name, error);
    return undefined;
  }
}
