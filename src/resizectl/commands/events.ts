import { isServiceError, Reason, wallTime } from '../../core/index.ts';
import type { Messages } from '../../server/api/messages.ts';
import { errorInfoOf } from '../output/failure.ts';
import { findPod } from '../output/pods.ts';
import { durationText, fullName, objectText } from '../output/text.ts';
import { eventText, inOrder, podLine, podsTable, shortId, shortResizeId, stepText } from '../output/views.ts';
import type { Context } from './context.ts';

type ResizeEvent = Messages['ResizeEvent'];

/** Formats an event as a line: UTC time (and date, if not today's), resize, pod, state or step, who, changes. */
export function eventLine({ time, resize_id: id, pod, requester, state, step }: ResizeEvent, now = wallTime()): string {
  const stamp = new Date(time.seconds * 1000 + time.nanos / 1e6).toISOString();
  const isToday = stamp.slice(0, 10) === new Date(now).toISOString().slice(0, 10);
  const clock = isToday ? stamp.slice(11) : stamp.replace('T', ' ');
  const about = `${clock}  ${shortResizeId(id)}  ${fullName(pod)}`;
  if (step !== undefined) return `${about}  step  ${stepText(step)}  (${durationText(step.took)})\n`;
  if (state === undefined) return '';
  return `${about}  ${eventText(state, requester)}\n`;
}

/** `resizectl events`: the stored resizes, then new events. Runs until it is interrupted or the shim stops. */
export async function events(context: Context, pod: string | undefined): Promise<void> {
  const { client, output, print, namespace } = context;
  const watch = client.watch(pod === undefined ? undefined : await findPod(context, pod), true);
  for await (const event of watch) {
    if (namespace !== undefined && event.pod.namespace !== namespace) continue;
    print(output === 'json' || output === 'yaml' ? objectText(event, output, true) : eventLine(event));
  }
}

/** `resizectl watch`: prints all pods, then a pod again each time a resize of it ends. */
export async function watchPods(context: Context, pod: string | undefined): Promise<void> {
  const { client, output, print, isWide, namespace } = context;
  const isShown = (of: string): boolean => namespace === undefined || of === namespace;
  const ref = pod === undefined ? undefined : await findPod(context, pod);
  const show = (shown: Messages['Pod']): void =>
    print(output === 'json' || output === 'yaml' ? objectText(shown, output, true) : lineOf(shown, isWide));
  const watch = client.watch(ref);
  await watch.opened;
  const all =
    ref === undefined ? (await client.call('ListPods', {})).pods : [(await client.call('GetPod', { pod: ref })).pod];
  const present = inOrder(all).filter(({ identity }) => isShown(identity.namespace));
  if (output === 'table') print(podsTable(present, isWide));
  else present.forEach(show);
  for await (const { pod: identity, state } of watch) {
    if (state === undefined || state.state === 'PROPOSED' || state.state === 'IN_PROGRESS') continue;
    if (!isShown(identity.namespace)) continue;
    show(await readAgain(context, identity));
  }
}

const lineOf = (pod: Messages['Pod'], isWide: boolean): string =>
  pod.unreadable?.reason === Reason.UNKNOWN_POD
    ? `${fullName(pod.identity)} (${shortId(pod.identity.sandbox_id)}) is gone\n`
    : podLine(pod, isWide);

/** Reads a pod that may be gone. If the shim cannot read it, returns the reason: a watch outlasts one failure. */
async function readAgain({ client }: Context, identity: Messages['Pod']['identity']): Promise<Messages['Pod']> {
  try {
    return (await client.call('GetPod', { pod: { sandbox_id: identity.sandbox_id } })).pod;
  } catch (error) {
    const reason = isServiceError(error) ? errorInfoOf(error)?.reason : undefined;
    if (!isServiceError(error) || reason === undefined) throw error;
    return { identity, unreadable: { reason, message: error.details } };
  }
}
