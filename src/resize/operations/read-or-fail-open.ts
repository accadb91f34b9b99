import { ShimError } from '../../core/errors/index.ts';
import { isNotServing } from '../../runtime/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';

/**
 * Runs `read`. When the state cannot be read, counts that and returns undefined, so that the request is forwarded unchanged. A
 * rejection (an invalid value, a limit below usage) is thrown, and so is the error of a runtime that does not serve at present: it may
 * serve the forwarded request a moment later, which would then be applied in no order.
 */
export async function readOrFailOpen<Result>(
  parts: { readonly failOpen: FailOpen },
  id: string,
  read: () => Promise<Result | undefined>,
): Promise<Result | undefined> {
  try {
    const result = await read();
    if (result === undefined) parts.failOpen('unreadable_state', id);
    return result;
  } catch (error) {
    if (isNotServing(error)) throw error;
    if (error instanceof ShimError && error.reason !== 'CGROUP_UNAVAILABLE') throw error;
    parts.failOpen('unreadable_state', id, error);
    return undefined;
  }
}
