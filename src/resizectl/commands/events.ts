import type { Context } from './context.ts';
import type { Responses, WirePod } from '../../api/wire/index.ts';
import {
  durationText,
  findPod,
  fullName,
  objectText,
  podLine,
  podsTable,
  printable,
  shortId,
  stateText,
  stepText,
} from '../output/index.ts';

type ResizeEvent = Responses['ResizeEvent'];

/** Formats an event as one line: time, resize, pod, state or step. */
export function eventLine({ time, resize_id: id, pod, state, step }: ResizeEvent): string {
  const clock = new Date(time.seconds * 1000 + time.nanos / 1e6).toISOString().slice(11, 23);
  const about = `${clock}  ${id.slice(0, 8)}  ${fullName(pod)}`;
  if (step !== undefined) return `${about}  step  ${stepText(step)}  (${durationText(step.took)})\n`;
  if (state === undefined) return '';
  const why = [state.reason, state.message]
    .filter((text) => text !== '')
    .map(printable)
    .join(': ');
  return `${about}  ${stateText(state.state)}${why === '' ? '' : `: ${why}`}\n`;
}

/** `resizectl events`. Runs until it is interrupted or the shim stops. */
export async function events({ client, output, print }: Context, pod: string | undefined): Promise<void> {
  const watch = client.watch(pod === undefined ? undefined : await findPod(client, pod));
  for await (const event of watch) {
    print(output === 'json' || output === 'yaml' ? objectText(event, output, true) : eventLine(event));
  }
}

/** `resizectl watch`: prints all pods, then a pod again each time a resize of it ends. */
export async function watchPods({ client, output, print }: Context, pod: string | undefined): Promise<void> {
  const ref = pod === undefined ? undefined : await findPod(client, pod);
  const show = (shown: WirePod): void =>
    print(output === 'json' || output === 'yaml' ? objectText(shown, output, true) : podLine(shown));
  const watch = client.watch(ref);
  await watch.opened;
  const present =
    ref === undefined ? (await client.call('ListPods', {})).pods : [(await client.call('GetPod', { pod: ref })).pod];
  if (output === 'table') print(podsTable(present));
  else present.forEach(show);
  for await (const { pod: identity, state } of watch) {
    if (state === undefined || state.state === 'PROPOSED' || state.state === 'IN_PROGRESS') continue;
    // The pod may be gone by now.
    const { pods } = await client.call('ListPods', {});
    const found = pods.find((other) => other.identity.sandbox_id === identity.sandbox_id);
    if (found === undefined) print(`${fullName(identity)} (${shortId(identity.sandbox_id)}) is gone\n`);
    else show(found);
  }
}
