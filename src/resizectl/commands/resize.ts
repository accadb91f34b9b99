import {
  Exit,
  exactSize,
  isServiceError,
  parseDuration,
  parseMilli,
  parseQuantity,
  Reason,
  within,
} from '../../core/index.ts';
import type { Messages } from '../../server/api/messages.ts';
import type { ResizeClient, Watch } from '../client.ts';
import { errorInfoOf, UsageError } from '../output/failure.ts';
import { readPod } from '../output/pods.ts';
import { objectText, printable } from '../output/text.ts';
import { changesTable, deferralText, endText, stepsTable } from '../output/views.ts';
import { type Amounts, parseChanges, type RequestedValues } from './changes.ts';
import type { Context, ResizeOptions } from './context.ts';
import { eventLine } from './events.ts';

/** The default of the API. */
const DEFAULT_TIMEOUT_MS = 30_000;
/** Additional time for a rollback and the response. */
const MARGIN_MS = 10_000;
/** The shim sends the last event before the response. If it does not arrive, the response has the state. */
const LAST_EVENT_MS = 2000;

/** `resizectl resize`, or `resizectl plan` as a dry run. Returns the exit code. Rejects with the API's error. */
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
  // Events and resize then concern the same pod, even if another pod of that name replaces it meanwhile.
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
  const send = (): Promise<Messages['ResizePodResponse']> =>
    client.call('ResizePod', request, (timeoutMs ?? DEFAULT_TIMEOUT_MS) + MARGIN_MS);
  if (options.dryRun === true) return printPlan(context, (await send()).resize, values);
  const result = output === 'table' ? await resizeWithEvents(context, ref, send) : await resultOf(client, send);
  printResult(context, result, found, values);
  return exitOf(result.resize);
}

/** Prints the result of a resize. An error contains its own reason. */
function printResult(
  { output, print, printError }: Context,
  result: Result,
  pod: Messages['Pod'],
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

function printPlan({ output, print }: Context, resize: Messages['Resize'], values: RequestedValues): Exit {
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
  readonly resize: Messages['Resize'];
  /** The API's error, if it answered with one. */
  readonly error?: unknown;
}

/**
 * Sends the request and returns the resize in its final state, also if the API answers with an error. Rejects if the
 * error names no resize.
 */
async function resultOf(client: ResizeClient, send: () => Promise<Messages['ResizePodResponse']>): Promise<Result> {
  try {
    return await send();
  } catch (error) {
    const id = isServiceError(error) ? errorInfoOf(error)?.metadata['resize'] : undefined;
    if (id === undefined) throw error;
    // A shim that was restarted meanwhile does not know the resize: the first error describes what happened.
    const found = await client.call('GetResize', { id }).catch(() => undefined);
    if (found === undefined) throw error;
    return { resize: found.resize, error };
  }
}

/** Like {@link resultOf}, but prints steps as they happen, or at the end if the shim accepts no more watchers. */
async function resizeWithEvents(
  context: Context,
  ref: Messages['PodRef'],
  send: () => Promise<Messages['ResizePodResponse']>,
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

const failing: ReadonlySet<string> = new Set(['DEFERRED', 'INFEASIBLE', 'CANCELED']);

/** Prints events as they arrive, including those of other resizes of this pod. */
function printEvents(
  { print }: Context,
  watch: Watch,
): { reached(resize: Pick<Messages['Resize'], 'id' | 'state'>): Promise<void>; readonly ended: Promise<void> } {
  const seen = new Set<string>();
  const waiting = new Map<string, () => void>();
  const read = async (): Promise<void> => {
    try {
      for await (const event of watch) {
        const state = event.state?.state;
        // The reason of the end is printed once, at the end.
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
export function exitOf({ state, reason }: Pick<Messages['Resize'], 'state' | 'reason'>): Exit {
  switch (state) {
    case 'COMPLETED':
      return Exit.done;
    case 'DEFERRED':
      return Exit.deferred;
    case 'CANCELED':
      // A resize that did not fit, or whose pod has ended, carries its error reason. The others carry CANCELLED,
      // SUPERSEDED or POD_GONE.
      return reason in Reason && reason !== Reason.SUPERSEDED ? Exit.infeasible : Exit.canceled;
    case 'INFEASIBLE':
      return reason === Reason.UNDO_FAILED ? Exit.undoFailed : Exit.infeasible;
    case 'PROPOSED':
    case 'IN_PROGRESS':
    case 'STATE_UNSPECIFIED':
      return Exit.failed;
  }
}

/** Notes for the user about a resize that was applied or is possible. */

/** Returns a note for each limit that the kernel has rounded, with both figures. */
export function roundingNotes(
  { resources, containers }: RequestedValues,
  { after }: Pick<Messages['Resize'], 'after'>,
): string[] {
  if (after === undefined) return [];
  const named = new Map(after.containers.map(({ name, values }) => [name, values.limits]));
  return [
    ...noteRounded('pod', resources?.limits, after.pod.limits),
    ...Object.entries(containers).flatMap(([name, { limits }]) =>
      noteRounded(`container ${name}`, limits, named.get(name)),
    ),
  ];
}

const SMALLEST_MILLI_CPU = 10;

function noteRounded(what: string, asked: Amounts = {}, found: Amounts = {}): string[] {
  const notes: string[] = [];
  const [askedCpu, cpu] = [milli(asked.cpu), milli(found.cpu)];
  if (askedCpu !== undefined && cpu !== undefined && askedCpu !== cpu) {
    const why = cpu === SMALLEST_MILLI_CPU ? ': the smallest CPU limit is 10m (1 ms of each 100 ms)' : '';
    notes.push(`note: ${what}.cpu: ${asked.cpu} becomes ${found.cpu}${why}`);
  }
  const [askedMemory, memory] = [size(asked.memory), size(found.memory)];
  if (askedMemory !== undefined && memory !== undefined && askedMemory !== memory)
    notes.push(`note: ${what}.memory: ${asked.memory} becomes ${exactSize(memory)}: the kernel counts whole pages`);
  return notes.map(printable);
}

const milli = (text: string | undefined): number | undefined => parseMilli(text ?? '');
const size = (text: string | undefined): number | undefined => parseQuantity(text ?? '');

/** Sources that show that kubelet manages the pod: its spec, its state or its labels. */
const ofKubelet: ReadonlySet<string> = new Set(['spec', 'kubelet-state', 'kubelet-labels']);

/**
 * Returns what kubelet does about a resize that it does not know of, and the command that makes it last. Empty for a
 * pod that kubelet does not manage.
 */
export function kubeletNotes(
  { identity, declared }: Pick<Messages['Pod'], 'identity' | 'declared'>,
  values: RequestedValues,
): string[] {
  if (!ofKubelet.has(declared?.source ?? '')) return [];
  const { namespace, name } = identity;
  const lasting = lastingContainers(values);
  const notes = [
    `note: kubelet manages pod ${namespace}/${name} and does not know of this resize. A container gets its old values back when it restarts, and the pod when kubelet resizes it next.`,
  ];
  if (isStatic(identity)) notes.push('To make it last, change the manifest of this static pod on its node.');
  else if (lasting.length > 0) {
    const patch = JSON.stringify({ spec: byList(lasting, declared) });
    notes.push(
      `To make it last, tell the API server:\n  kubectl patch pod ${quoted(name)} -n ${quoted(namespace)} --subresource resize --patch ${quoted(patch)}`,
    );
  }
  if (hasOthers(values, lasting))
    notes.push(
      "The subresource resize has no value for a removed limit, the pod's own values and volumes; docs/volumes.md has the annotation for volumes.",
    );
  return notes.map((note) => note.split('\n').map(printable).join('\n'));
}

/** A static pod's uid is a hash, any other pod's a UUID (kubelet pkg/kubelet/config/common.go, applyDefaults). */
const isStatic = ({ uid }: Messages['Pod']['identity']): boolean => /^[0-9a-f]{32}$/.test(uid);

/** Returns the lists of the spec that have these containers: sidecars and init containers are in one of their own. */
function byList(
  lasting: readonly LastingContainer[],
  declared: Messages['Pod']['declared'],
): { readonly containers?: LastingContainer[]; readonly initContainers?: LastingContainer[] } {
  const isInit = ({ name }: LastingContainer): boolean =>
    declared?.containers.some((one) => one.name === name && (one.kind === 'sidecar' || one.kind === 'init')) === true;
  const initContainers = lasting.filter(isInit);
  const containers = lasting.filter((one) => !isInit(one));
  return { ...(containers.length > 0 && { containers }), ...(initContainers.length > 0 && { initContainers }) };
}

interface LastingContainer {
  readonly name: string;
  readonly resources: { readonly limits?: Amounts; readonly requests?: Amounts };
}

/** The changes that the resize subresource supports: container limits and requests, but not a limit's removal. */
function lastingContainers({ containers }: RequestedValues): LastingContainer[] {
  return Object.entries(containers).flatMap(([name, { limits, requests }]) => {
    const kept = withoutRemoved(limits);
    if (kept === undefined && requests === undefined) return [];
    return [{ name, resources: { ...(kept && { limits: kept }), ...(requests && { requests }) } }];
  });
}

function withoutRemoved(limits: Amounts = {}): Amounts | undefined {
  const left = Object.entries(limits).filter(([, amount]) => amount !== 'max');
  return left.length === 0 ? undefined : Object.fromEntries(left);
}

const hasOthers = (
  { resources, containers, volumes }: RequestedValues,
  lasting: readonly LastingContainer[],
): boolean =>
  resources !== undefined ||
  Object.keys(volumes).length > 0 ||
  lasting.length < Object.keys(containers).length ||
  Object.values(containers).some(({ limits = {} }) => Object.values(limits).includes('max'));

/** Quotes an argument for a shell, if it needs that. */
const quoted = (text: string): string => (/^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
