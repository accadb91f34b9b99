import { Reason, isServiceError } from '../../core/errors/index.ts';
import { parseDuration } from '../../config/index.ts';
import type { ResizeClient, Watch } from '../client.ts';
import { Exit } from '../command-table/index.ts';
import type { Context, ResizeOptions } from './context.ts';
import { eventLine } from './events.ts';
import { type RequestedValues, parseChanges } from './changes.ts';
import { kubeletNotes, roundingNotes } from './notes.ts';
import type { Responses, WirePod, WirePodRef, WireResize } from '../../api/wire/index.ts';
import {
  UsageError,
  changesTable,
  deferralText,
  endText,
  errorInfoOf,
  readPod,
  objectText,
  stepsTable,
} from '../output/index.ts';

/** The default of the API. */
const DEFAULT_TIMEOUT_MS = 30_000;
/** The rollback takes extra time, and so does the response. */
const MARGIN_MS = 10_000;
/** The shim sends the last event before the response. If it does not arrive, the response has the state. */
const LAST_EVENT_MS = 2000;

/** `resizectl resize` and, with a dry run, `resizectl plan`. Returns the exit code. Rejects with the error of the API. */
export async function resize(
  context: Context,
  pod: string,
  changes: readonly string[],
  options: ResizeOptions,
): Promise<Exit> {
  const { client, output } = context;
  const timeoutMs = parseTimeout(options.timeout);
  const values = parseChanges(changes);
  const found = await readPod(context, pod);
  // Events and resize then concern the same pod, even if another one of that name replaces it meanwhile.
  const ref = { sandbox_id: found.identity.sandbox_id };
  const request = {
    pod: ref,
    ...values,
    dry_run: options.dryRun === true,
    defer: options.defer === true,
    ...(timeoutMs !== undefined && {
      timeout: { seconds: Math.floor(timeoutMs / 1000), nanos: (timeoutMs % 1000) * 1e6 },
    }),
  };
  const send = (): Promise<Responses['ResizePodResponse']> =>
    client.call('ResizePod', request, (timeoutMs ?? DEFAULT_TIMEOUT_MS) + MARGIN_MS);
  if (options.dryRun === true) return printPlan(context, (await send()).resize, values);
  const result = output === 'table' ? await resizeWithEvents(context, ref, send) : await resultOf(client, send);
  printResult(context, result, found, values);
  return exitOf(result.resize);
}

/** Prints the end of a resize. An error says why itself. */
function printResult(
  { output, print, printError }: Context,
  result: Result,
  pod: WirePod,
  values: RequestedValues,
): void {
  const { resize, error } = result;
  if (output !== 'table') print(objectText({ resize }, output === 'yaml' ? 'yaml' : 'json'));
  else if (error === undefined) {
    const isDone = resize.state === 'COMPLETED';
    const notes = isDone ? [...roundingNotes(values, resize), ...kubeletNotes(pod, values)] : [];
    print(`${endText(resize)}${changesTable(resize)}${notesText(notes)}`);
  } else print(endText({ ...resize, reason: '', message: '' }));
  if (error !== undefined) printError(error);
}

function printPlan({ output, print }: Context, resize: WireResize, values: RequestedValues): Exit {
  const notes = notesText(roundingNotes(values, resize));
  const isDeferred = resize.state === 'DEFERRED';
  if (output !== 'table') print(objectText({ resize }, output === 'yaml' ? 'yaml' : 'json'));
  else if (isDeferred) print(deferralText(resize));
  else print(`${stepsTable(resize.steps, true)}${resize.steps.length > 0 ? '\n' : ''}${changesTable(resize)}${notes}`);
  return isDeferred ? Exit.deferred : Exit.done;
}

const notesText = (notes: readonly string[]): string => notes.map((note) => `\n${note}\n`).join('');

function parseTimeout(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const ms = parseDuration(text);
  if (ms === undefined || ms === 0)
    throw new UsageError(
      `--timeout: invalid duration ${JSON.stringify(text)}: expected a duration such as 500ms, 30s or 2m`,
    );
  return ms;
}

interface Result {
  readonly resize: WireResize;
  /** The error with which the API answered, if it did. */
  readonly error?: unknown;
}

/**
 * Sends the request and returns the resize in its final state, also if the API answers with an error. Rejects if the
 * error names no resize.
 */
async function resultOf(client: ResizeClient, send: () => Promise<Responses['ResizePodResponse']>): Promise<Result> {
  try {
    return await send();
  } catch (error) {
    const id = isServiceError(error) ? errorInfoOf(error)?.metadata['resize'] : undefined;
    if (id === undefined) throw error;
    // A shim that has restarted meanwhile does not know the resize: the first error says what happened.
    const found = await client.call('GetResize', { id }).catch(() => undefined);
    if (found === undefined) throw error;
    return { resize: found.resize, error };
  }
}

/** Like {@link resultOf}, and prints each step as it happens. If the shim accepts no further watcher, prints the steps at the end. */
async function resizeWithEvents(
  context: Context,
  ref: WirePodRef,
  send: () => Promise<Responses['ResizePodResponse']>,
): Promise<Result> {
  const watch = context.client.watch(ref);
  try {
    await watch.opened;
  } catch (error) {
    context.printError(error);
    const result = await resultOf(context.client, send);
    context.print(stepsTable(result.resize.steps, false));
    return result;
  }
  const events = printEvents(context, watch);
  try {
    const result = await resultOf(context.client, send);
    // The events were sent before the response, but on another stream: the last one may arrive later.
    await within(LAST_EVENT_MS, events.reached(result.resize));
    return result;
  } finally {
    watch.cancel();
    await events.ended;
  }
}

/** Resolves when the work is done, or after this time. */
async function within(ms: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  await Promise.race([work, timeout]).finally(() => clearTimeout(timer));
}

const failing: ReadonlySet<string> = new Set(['DEFERRED', 'INFEASIBLE', 'CANCELED']);

/** Prints events as they arrive, including those of other resizes of this pod. */
function printEvents(
  { print }: Context,
  watch: Watch,
): { reached(resize: Pick<WireResize, 'id' | 'state'>): Promise<void>; readonly ended: Promise<void> } {
  const seen = new Set<string>();
  const waiting = new Map<string, () => void>();
  const read = async (): Promise<void> => {
    try {
      for await (const event of watch) {
        const state = event.state?.state;
        // Why it ends is printed once, at the end.
        if (state === undefined || !failing.has(state)) print(eventLine(event));
        if (state === undefined) continue;
        const key = `${event.resize_id} ${state}`;
        seen.add(key);
        waiting.get(key)?.();
      }
    } catch {
      // Either we cancelled the watch, or it was cut off: then the response itself has the final state.
    }
    for (const wake of waiting.values()) wake();
  };
  const ended = read();
  return {
    ended,
    reached({ id, state }) {
      const key = `${id} ${state}`;
      return seen.has(key)
        ? Promise.resolve()
        : Promise.race([ended, new Promise<void>((resolve) => waiting.set(key, resolve))]);
    },
  };
}

/** Returns the exit code for the final state of a resize. */
export function exitOf({ state, reason }: Pick<WireResize, 'state' | 'reason'>): Exit {
  switch (state) {
    case 'COMPLETED':
      return Exit.done;
    case 'DEFERRED':
      return Exit.deferred;
    case 'CANCELED':
      // A resize that did not fit, or whose pod has ended, carries its error reason. The others carry CANCELLED, SUPERSEDED or POD_GONE.
      return reason in Reason && reason !== Reason.SUPERSEDED ? Exit.infeasible : Exit.canceled;
    case 'INFEASIBLE':
      return reason === Reason.UNDO_FAILED ? Exit.undoFailed : Exit.infeasible;
    case 'PROPOSED':
    case 'IN_PROGRESS':
    case 'STATE_UNSPECIFIED':
      return Exit.failed;
  }
}
