import { Reason } from '../../core/errors/index.ts';
import { parseDuration } from '../../config/index.ts';
import type { ResizeClient, Watch } from '../client.ts';
import { Exit } from '../command-table.ts';
import type { Context, ResizeOptions } from './context.ts';
import { eventLine } from './events.ts';
import { readWishes } from './changes.ts';
import type { Responses, WirePodRef, WireResize } from '../../api/wire/index.ts';
import {
  UsageError,
  changesTable,
  endText,
  errorInfoOf,
  findPod,
  isServiceError,
  objectText,
  stepsTable,
} from '../output/index.ts';
/** The API's own, where none is given. */
const DEFAULT_TIMEOUT_MS = 30_000;
/** Undoing takes time of its own, and the answer goes a way. */
const MARGIN_MS = 10_000;

/** `resizectl resize` and, with a dry run, `resizectl plan`. Gives the exit code. Rejects as the API refuses. */
export async function resize(
  context: Context,
  pod: string,
  wishes: readonly string[],
  options: ResizeOptions,
): Promise<Exit> {
  const { client, output } = context;
  const timeoutMs = readTimeout(options.timeout);
  const asked = readWishes(wishes);
  if (options.dryRun === true && options.defer === true)
    throw new UsageError('--dry-run changes nothing, now or later: leave out --defer');
  const ref = await sandboxOf(client, pod);
  const request = {
    ...{ pod: ref, ...asked, dry_run: options.dryRun === true, defer: options.defer === true },
    ...(timeoutMs !== undefined && {
      timeout: { seconds: Math.floor(timeoutMs / 1000), nanos: (timeoutMs % 1000) * 1e6 },
    }),
  };
  const ask = (): Promise<Responses['ResizePodResponse']> =>
    client.call('ResizePod', request, (timeoutMs ?? DEFAULT_TIMEOUT_MS) + MARGIN_MS);
  if (options.dryRun === true) return planned(context, (await ask()).resize);
  const done = output === 'table' ? await watched(context, ref, ask) : await settled(client, ask);
  if (output === 'table') context.print(`${endText(done.resize)}${changesTable(done.resize)}`);
  else context.print(objectText({ resize: done.resize }, output === 'yaml' ? 'yaml' : 'json'));
  if (done.error !== undefined) context.complain(done.error);
  return exitOf(done.resize);
}

/** The sandbox itself: what is watched and what is resized are then one, whatever becomes of the pod in between. */
async function sandboxOf(client: ResizeClient, text: string): Promise<WirePodRef> {
  const { pod } = await client.call('GetPod', { pod: await findPod(client, text) });
  return { sandbox_id: pod.identity.sandbox_id };
}

function planned({ output, print }: Context, resize: WireResize): Exit {
  if (output !== 'table') print(objectText({ resize }, output === 'yaml' ? 'yaml' : 'json'));
  else print(`${stepsTable(resize.steps, true)}${resize.steps.length > 0 ? '\n' : ''}${changesTable(resize)}`);
  return Exit.done;
}

function readTimeout(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const ms = parseDuration(text);
  if (ms === undefined || ms === 0)
    throw new UsageError(`--timeout: ${JSON.stringify(text)} is no duration: want 500ms, 30s or 2m`);
  return ms;
}

interface Done {
  readonly resize: WireResize;
  /** What its caller was told instead of an answer. */
  readonly error?: unknown;
}

/** The resize as it ended, also where the API answers with an error: it is kept all the same. Rejects when there is none. */
async function settled(client: ResizeClient, ask: () => Promise<Responses['ResizePodResponse']>): Promise<Done> {
  try {
    return await ask();
  } catch (error) {
    const id = isServiceError(error) ? errorInfoOf(error)?.metadata['resize'] : undefined;
    if (id === undefined) throw error;
    const { resize } = await client.call('GetResize', { id });
    return { resize, error };
  }
}

/** The same, and each step is shown as it happens. Where no more may watch, the steps are shown at the end. */
async function watched(
  context: Context,
  ref: WirePodRef,
  ask: () => Promise<Responses['ResizePodResponse']>,
): Promise<Done> {
  const watch = context.client.watch(ref);
  try {
    await watch.opened;
  } catch (error) {
    context.complain(error);
    const done = await settled(context.client, ask);
    context.print(stepsTable(done.resize.steps, false));
    return done;
  }
  const seen = follow(context, watch);
  try {
    const done = await settled(context.client, ask);
    // The events were sent before the answer, but on another stream: the last one may still be on its way.
    await seen.reached(done.resize);
    return done;
  } finally {
    watch.cancel();
    await seen.over;
  }
}

/** Prints events as they come. Of other resizes of this pod too: what they do is done to it. */
function follow(
  { print }: Context,
  watch: Watch,
): { reached(resize: Pick<WireResize, 'id' | 'state'>): Promise<void>; readonly over: Promise<void> } {
  const seen = new Set<string>();
  const waiting = new Map<string, () => void>();
  const read = async (): Promise<void> => {
    try {
      for await (const event of watch) {
        print(eventLine(event));
        const state = event.state?.state;
        if (state === undefined) continue;
        const key = `${event.resize_id} ${state}`;
        seen.add(key);
        waiting.get(key)?.();
      }
    } catch {
      // Cancelled by us at the end; or cut off, and then the answer itself tells how it ended.
    }
    for (const wake of waiting.values()) wake();
  };
  const over = read();
  return {
    over,
    reached({ id, state }) {
      const key = `${id} ${state}`;
      return seen.has(key)
        ? Promise.resolve()
        : Promise.race([over, new Promise<void>((resolve) => waiting.set(key, resolve))]);
    },
  };
}

/** The state of a resize as an exit code. */
export function exitOf({ state, reason }: Pick<WireResize, 'state' | 'reason'>): Exit {
  switch (state) {
    case 'COMPLETED':
      return Exit.done;
    case 'DEFERRED':
      return Exit.deferred;
    case 'CANCELED':
      // One that did not fit yet says why; the others, by whom they were ended.
      return reason in Reason ? Exit.infeasible : Exit.canceled;
    case 'INFEASIBLE':
      return reason === Reason.UNDO_FAILED ? Exit.undoFailed : Exit.infeasible;
    case 'PROPOSED':
    case 'IN_PROGRESS':
    case 'STATE_UNSPECIFIED':
      return Exit.failed;
  }
}
