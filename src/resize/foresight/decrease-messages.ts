import { type MemoryUse, usageText } from '../../cgroups/index.ts';
import { Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import type { Decrease } from './decrease.ts';
import { stuckFrom } from './decrease-policy.ts';

/** The texts that say why a decrease is deferred: for the report, the log and the event. */

/** A decrease with the usage that blocks it. */
export type Blocked = Decrease & { readonly use: MemoryUse };

const toLower = ({ text, from, to }: Decrease): string =>
  `${text}: kubelet is to lower memory.max from ${from} to ${to}`;

const figures = (use: MemoryUse): string =>
  `${use.current} bytes are in use, ${use.unreclaimable} of which cannot be reclaimed ` + `(${usageText(use)})`;

/** Too much memory cannot be reclaimed. */
export function stuckMessage(blocked: Blocked): string {
  const { to, use } = blocked;
  const most = stuckFrom(to);
  const { unreclaimable, current } = use;
  return (
    `${toLower(blocked)}, but ${unreclaimable} bytes are in use that cannot be reclaimed ` +
    `(${usageText(use)}; memory.current ${current}): ` +
    (most > 0 ? `expected less than ${most}` : 'usage cannot be held below so small a limit')
  );
}

/** Usage is not below the limit yet, and does not fall. */
export const stalledMessage = (blocked: Blocked): string =>
  `${toLower(blocked)}, but usage does not fall below it while memory is reclaimed: ${figures(blocked.use)}`;

/** Usage has climbed back to the limit while it was held. */
export const climbedMessage = (blocked: Blocked): string =>
  `${toLower(blocked)}, but usage climbs back as fast as memory is reclaimed: ${figures(blocked.use)}`;

/** Other programs have raised memory.high again and again. */
export const lostMessage = (blocked: Blocked): string =>
  `${toLower(blocked)}, but another program raises memory.high, and usage climbs back: ${figures(blocked.use)}`;

/** kubelet has not tried while usage was below the limit. */
export const expiredMessage = (blocked: Blocked, heldMs: number): string =>
  `${toLower(blocked)}, but has not done so while usage was held below it for ${Math.round(heldMs / 1000)} s: ${figures(blocked.use)}`;

/** Usage could not be brought below the limit, or not be held there. */
export function failedMessage(blocked: Blocked, error: unknown): string {
  const { current, unreclaimable } = blocked.use;
  if (error instanceof ShimError && error.reason === Reason.RECLAIM_TIMEOUT)
    return (
      `${toLower(blocked)}, but ${current} bytes are in use: ` +
      `reclaim frees no more of the ${Math.max(0, current - unreclaimable)} reclaimable bytes`
    );
  return `${toLower(blocked)}, but usage cannot be held below it: ${messageOf(error)}`;
}

/** Says why a decrease is deferred after a hold. */
export function afterHoldMessage(
  blocked: Blocked,
  end: 'lost' | 'expired' | { readonly error: unknown },
  heldMs: number,
): string {
  if (end === 'lost') return lostMessage(blocked);
  return end === 'expired' ? expiredMessage(blocked, heldMs) : failedMessage(blocked, end.error);
}
