import { Reason, isServiceError } from '../../core/errors/index.ts';
import type { WireResize } from '../../api/wire/index.ts';
import { Exit } from '../command-table/index.ts';
import { UsageError, endText, errorInfoOf, findPod, fullName, objectText } from '../output/index.ts';
import type { Context } from './context.ts';
import { exitOf } from './resize.ts';

/** `resizectl cancel`: a resize by its id or the beginning of it, or all resizes of a pod that have not ended. Returns the exit code. */
export async function cancel(context: Context, text: string): Promise<Exit> {
  const { output, print } = context;
  const ended = await cancelById(context, text);
  for (const resize of ended)
    print(output === 'json' || output === 'yaml' ? objectText({ resize }, output, ended.length > 1) : endText(resize));
  // The cancellation succeeded, so this is not the exit code 5 of a canceled resize.
  const failed = ended.find(({ state }) => state !== 'CANCELED');
  return failed === undefined ? Exit.done : exitOf(failed);
}

/** An id has the form of a UUID. A pod may have such a name: then the id comes first. */
const isId = (text: string): boolean => /^[0-9a-f][0-9a-f-]*$/.test(text);

async function cancelById(context: Context, text: string): Promise<readonly WireResize[]> {
  if (!isId(text)) return cancelOfPod(context, text);
  try {
    return [(await context.client.call('CancelResize', { id: text })).resize];
  } catch (error) {
    const isUnknown = isServiceError(error) && errorInfoOf(error)?.reason === Reason.UNKNOWN_RESIZE;
    if (!isUnknown) throw error;
    // The message about the id says more than one about a pod.
    return await cancelOfPod(context, text).catch(() => Promise.reject(error));
  }
}

async function cancelOfPod(context: Context, text: string): Promise<readonly WireResize[]> {
  const { client } = context;
  const { pod } = await client.call('GetPod', { pod: await findPod(context, text) });
  const waiting = (pod.history ?? []).filter(
    ({ state, requester }) =>
      (state === 'DEFERRED' || state === 'IN_PROGRESS') &&
      (requester?.kind === 'API' || requester?.kind === 'ANNOTATION'),
  );
  if (waiting.length === 0)
    throw new UsageError(`pod ${fullName(pod.identity)} has no resize to cancel; resizectl events lists the last ones`);
  const ended: WireResize[] = [];
  for (const { id } of waiting) ended.push((await client.call('CancelResize', { id })).resize);
  return ended;
}
