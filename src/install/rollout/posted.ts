import type { Reason } from './events.ts';
import type { RolloutContext } from './rollout-context.ts';
import { retry } from './turns/index.ts';
import { isForbidden } from '../../kubernetes/client/index.ts';

/** Maximum time to create an event, in milliseconds. */
export const EVENT_MS = 30_000;

/** What {@link posted} needs. */
export type PostingContext = Pick<RolloutContext, 'eventToPost' | 'random' | 'say' | 'clock'>;

/** Creates an event of the node, unless that takes too long, or the right is missing. */
export async function posted(
  context: PostingContext,
  reason: Reason,
  note: string,
  signal: AbortSignal,
): Promise<void> {
  const soon = AbortSignal.any([signal, AbortSignal.timeout(EVENT_MS)]);
  const created = retry('the event cannot be created', context, soon, context.eventToPost(reason, note), isForbidden);
  await created.catch((error: unknown) => {
    const why = isForbidden(error)
      ? `: ${error.message}; the installer needs the right to create events (events.k8s.io) in the namespace default`
      : '';
    context.say(`the event was not created${why}`);
  });
}
