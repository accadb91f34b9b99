import { ShimError } from '../../core/errors/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';

/**
 * What cannot be read is not acted on: undefined, counted. A refusal (a value without meaning, a limit under use) is not a
 * failure to read, and is thrown on.
 */
export async function failOpen<Result>(
  context: { readonly failOpen: FailOpen },
  id: string,
  read: () => Promise<Result | undefined>,
): Promise<Result | undefined> {
  try {
    const result = await read();
    if (result === undefined) context.failOpen('unreadable_state', id);
    return result;
  } catch (error) {
    if (error instanceof ShimError && error.reason !== 'CGROUP_UNAVAILABLE') throw error;
    context.failOpen('unreadable_state', id, error);
    return undefined;
  }
}
