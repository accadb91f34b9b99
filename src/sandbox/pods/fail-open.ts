/** Fail open: requests that the shim cannot understand, or whose state it cannot read, are forwarded and counted. */
import { type Counters, type FailOpenReason, type Log, messageOf, oncePerKey, ShimError } from '../../core/index.ts';
import { isNotServing } from '../../runtime/index.ts';

/** Counts a request that is forwarded unchanged, and logs it once for each id and reason. */
export type FailOpen = (reason: FailOpenReason, id: string, error?: unknown) => void;

/** Returns a function that counts requests that are forwarded unchanged, and logs each id and reason once. */
export function failOpenReport(counters: Counters, log: Log): FailOpen {
  const first = oncePerKey();
  return (reason, given, error) => {
    counters.failOpen(reason);
    // The id comes from the caller: it may be of any length.
    const id = given.slice(0, 128);
    if (!first(`${reason} ${id}`)) return;
    const fields = { reason, id, ...(error === undefined ? {} : { error: messageOf(error) }) };
    log.warn(fields, 'request forwarded unchanged');
  };
}

/**
 * Runs `read`. When the state cannot be read, counts that and returns undefined, so that the request is forwarded
 * unchanged. A rejection (an invalid value, a limit below usage) is thrown, and so is the error of a runtime that is
 * not ready: it may serve the forwarded request a moment later, without the ordering rules.
 */
export async function readOrFailOpen<Result>(
  failOpen: FailOpen,
  id: string,
  read: () => Promise<Result | undefined>,
): Promise<Result | undefined> {
  try {
    const result = await read();
    if (result === undefined) failOpen('unreadable_state', id);
    return result;
  } catch (error) {
    if (isNotServing(error)) throw error;
    if (error instanceof ShimError && error.reason !== 'CGROUP_UNAVAILABLE') throw error;
    failOpen('unreadable_state', id, error);
    return undefined;
  }
}
