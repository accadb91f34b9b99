import type { MemoryUse } from '../cgroups/index.ts';
import { Code, Reason, ShimError } from '../errors/index.ts';
import type { Bytes, Limit } from '../units/index.ts';

/** What is looked at before anything changes. */

/** Whether a memory limit cannot be lowered to `wanted`: reclaim could not get the use under it, and the kernel kills. */
export function isUnderUse(wanted: Limit<Bytes>, now: Limit<Bytes>, use: MemoryUse): boolean {
  const lowered = wanted !== 'max' && (now === 'max' || wanted < now);
  return lowered && use.unreclaimable >= wanted;
}

/**
 * Throws MEMORY_NOT_RECLAIMABLE, with the figures, when {@link isUnderUse}. `whose` is `container web` or `pod default/web`.
 */
export function assertNotUnderUse(
  whose: { readonly text: string; readonly pod?: string; readonly container?: string },
  wanted: Limit<Bytes>,
  now: Limit<Bytes>,
  use: MemoryUse,
): void {
  if (!isUnderUse(wanted, now, use)) return;
  const { text, ...ids } = whose;
  throw new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.MEMORY_NOT_RECLAIMABLE,
    `${text}: memory.max cannot be lowered from ${now} to ${wanted}: ${use.unreclaimable} bytes are in use that cannot be ` +
      `reclaimed (anon ${use.anon}, shmem ${use.shmem}, unevictable ${use.unevictable}, of ${use.current} in all)`,
    { ...ids, file: 'memory.max', asked: String(wanted), found: String(use.unreclaimable) },
  );
}
