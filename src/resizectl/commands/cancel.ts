import { Exit, isServiceError, Reason } from '../../core/index.ts';
import type { Messages } from '../../server/api/messages.ts';
import { errorInfoOf, UsageError } from '../output/failure.ts';
import { findNamed, findPod } from '../output/pods.ts';
import { fullName, objectText } from '../output/text.ts';
import { endText } from '../output/views.ts';
import type { Context } from './context.ts';
import { exitOf } from './resize.ts';

/**
 * `resizectl cancel`: a resize by its id or the first characters of it, or all resizes of a pod that have not ended.
 * Returns the exit code.
 */
export async function cancel(context: Context, text: string): Promise<Exit> {
  const { output, print } = context;
  const ended = await cancelAll(context, text);
  for (const resize of ended)
    print(output === 'json' || output === 'yaml' ? objectText({ resize }, output, ended.length > 1) : endText(resize));
  // The cancellation succeeded, so this is not the exit code 5 of a canceled resize.
  const failed = ended.find(({ state }) => state !== 'CANCELED');
  return failed === undefined ? Exit.done : exitOf(failed);
}

/** The beginning of an id, or a pod name of hexadecimal letters. */
const isId = (text: string): boolean => /^[0-9a-f][0-9a-f-]*$/.test(text);
const isWholeId = (text: string): boolean => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);
/** The length of ids in events. A shorter prefix may be a misspelled pod name and cancel another pod's resize. */
const SHORTEST_ID = 8;

async function cancelAll(context: Context, text: string): Promise<readonly Messages['Resize'][]> {
  if (!isId(text)) return cancelOfPod(context, await findPod(context, text));
  const named = isWholeId(text) ? undefined : await findNamed(context, text);
  if (named !== undefined) return cancelOfPod(context, named);
  if (text.length < SHORTEST_ID)
    throw new UsageError(
      `no pod on this node is named ${JSON.stringify(text)}, and the beginning of an id has at least ${SHORTEST_ID} characters; ` +
        'resizectl events lists the last resizes',
    );
  return cancelById(context, text);
}

async function cancelById(context: Context, text: string): Promise<readonly Messages['Resize'][]> {
  try {
    return [(await context.client.call('CancelResize', { id: text })).resize];
  } catch (error) {
    const isUnknown = isServiceError(error) && errorInfoOf(error)?.reason === Reason.UNKNOWN_RESIZE;
    if (!isUnknown) throw error;
    // The error about the id is more helpful than one about a pod.
    const pod = await findPod(context, text).catch(() => Promise.reject(error));
    return cancelOfPod(context, pod);
  }
}

async function cancelOfPod({ client }: Context, ref: Messages['PodRef']): Promise<readonly Messages['Resize'][]> {
  const { pod } = await client.call('GetPod', { pod: ref });
  const waiting = (pod.history ?? []).filter(
    ({ state, requester }) =>
      (state === 'DEFERRED' || state === 'IN_PROGRESS') &&
      (requester?.kind === 'API' || requester?.kind === 'ANNOTATION'),
  );
  if (waiting.length === 0)
    throw new UsageError(`pod ${fullName(pod.identity)} has no resize to cancel; resizectl events lists the last ones`);
  const ended: Messages['Resize'][] = [];
  for (const { id } of waiting) ended.push((await client.call('CancelResize', { id })).resize);
  return ended;
}
