import type { Reason } from './events.ts';
import type { RolloutContext } from './rollout-context.ts';
import { retry } from './turns/index.ts';

/** Maximum time to create an event, in milliseconds. */
export const EVENT_MS = 30_000;

/** What {@link posted} needs. */
export type PostingContext = Pick<RolloutContext, 'postEvent' | 'random' | 'say' | 'clock'>;

/** Creates an event of the node, unless that takes too long. */
export async function posted(
  context: PostingContext,
  reason: Reason,
  note: string,
  signal: AbortSignal,
): Promise<void> {
  const soon = AbortSignal.any([signal, AbortSignal.timeout(EVENT_MS)]);
  const created = retry('the event cannot be created', context, soon, (at) => context.postEvent(reason, note, at));
  await created.catch(() => context.say('the event was not created'));
}
