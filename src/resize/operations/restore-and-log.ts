import { steadyNow } from '../../core/concurrency/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type OnHigh, ROLLBACK_MS, type RestoreLimitsParts, restoreLimits } from '../execute/index.ts';
import type { LiveContainer } from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';

/**
 * Restores the limits that a container had before. Never rejects: the caller has an answer of its own, and the next request reads
 * the limits again. The caller holds the container's `calls` lock.
 */
export async function restoreAndLog(
  parts: RestoreLimitsParts,
  pod: PodDescription,
  before: LiveContainer,
  why: string,
  onHigh?: OnHigh,
): Promise<void> {
  const { id } = before;
  try {
    const changed = await restoreLimits(parts, pod, before, { until: steadyNow() + ROLLBACK_MS, onHigh });
    if (changed !== undefined)
      parts.log.warn(
        { pod: pod.sandboxId, container: id, found: foundForLog(changed), why },
        'container limits restored',
      );
  } catch (error) {
    parts.log.error({ pod: pod.sandboxId, container: id, error: messageOf(error) }, 'container limits not restored');
  }
}

const foundForLog = ({ memory, cpu, shares, swap, settings = {} }: ContainerStep): string =>
  [
    memory && memory.from !== memory.to ? memory.from : undefined,
    cpu && `${cpu.from.quota} ${cpu.from.period}`,
    shares && `${shares.from} shares`,
    swap && swap.from !== swap.to ? `swap ${swap.from}` : undefined,
    ...Object.entries(settings).flatMap(([file, { from, to }]) => (from === to ? [] : [`${file} ${from}`])),
  ]
    .filter((found) => found !== undefined)
    .join(', ');
