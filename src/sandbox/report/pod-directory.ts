import { setImmediate as nextTurn } from 'node:timers/promises';
import { type CancelSignal, Code, isServiceError, Reason, ShimError, within } from '../../core/index.ts';
import type { CallOptions, PodDescription } from '../../runtime/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import { invalid } from '../plan/amounts.ts';
import { backendFailure, type Explanation } from '../plan/failures.ts';
import { LIST_MS, type ListedContainers } from '../pods/container-lists.ts';
import { fullName } from '../pods/names.ts';
import { identityOf, type PodIdentity } from '../pods/pod-identity.ts';
import type { ContainersByPod, Registry } from '../pods/registry.ts';
import type { PodListing, PodView, ReadPodView } from './pod-view.ts';

/** A caller's reference to a pod. */
export type PodRef =
  /** A sandbox id, or a unique prefix of one. */
  | { readonly by: 'sandbox_id'; readonly id: string }
  | { readonly by: 'uid'; readonly uid: string }
  | { readonly by: 'name'; readonly namespace: string; readonly name: string };

/** A pod that the backend lists. */
interface ListedPod extends PodListing {
  readonly pod: PodIdentity;
}

/** Finds and describes this node's pods for callers of the resize API. Backend calls end when a signal aborts. */
export interface PodDirectory {
  /** Rejects with UNKNOWN_POD, AMBIGUOUS_POD, INVALID_VALUE (with the field's path) or BACKEND_UNAVAILABLE. */
  find(ref: PodRef, signal?: CancelSignal): Promise<PodIdentity>;
  /** Returns the backend's present pods by namespace, name and sandbox id. Rejects with BACKEND_UNAVAILABLE. */
  list(signal?: CancelSignal): Promise<readonly ListedPod[]>;
  /** Returns the containers that the backend lists now. Rejects with BACKEND_UNAVAILABLE. */
  listContainers(signal?: CancelSignal): Promise<ContainersByPod>;
  readonly describe: ReadPodView;
  /** Returns the container's name in its pod; its id if the name is unknown. */
  readonly containerName: (sandboxId: string, containerId: string) => string;
}

export interface PodDirectoryOptions {
  readonly registry: Pick<Registry, 'pod' | 'pods' | 'container' | 'refresh' | 'refreshPods' | 'refreshContainers'>;
  readonly volumes: Pick<MemoryVolumes, 'atOnce'>;
  /** Returns whether a sandbox is ready: a pod may have ended sandboxes in addition to the running one. */
  readonly isReady: (sandboxId: string) => Promise<boolean>;
  readonly readPodView: ReadPodView;
}

/** Returns the directory of the pods in the registry. */
export function podDirectory(given: PodDirectoryOptions): PodDirectory {
  const { registry, isReady, readPodView } = given;
  const readyOnes = async (pods: readonly PodDescription[]): Promise<readonly PodDescription[]> => {
    if (pods.length < 2) return pods;
    const ready = await Promise.all(pods.map(({ sandboxId }) => isReady(sandboxId)));
    return pods.filter((_, index) => ready[index]);
  };
  const matching = async (ref: PodRef, options?: CallOptions): Promise<readonly PodDescription[]> => {
    switch (ref.by) {
      case 'sandbox_id':
        return byId(registry, ref.id, options);
      case 'uid':
        return readyOnes(registry.pods.filter(({ metadata }) => metadata.uid === ref.uid));
      case 'name':
        return readyOnes(
          registry.pods.filter(({ metadata }) => metadata.namespace === ref.namespace && metadata.name === ref.name),
        );
    }
  };
  return {
    find: (ref, signal) =>
      withBackend(async () => {
        assertRef(ref);
        const options = signal && { signal };
        const known = await matching(ref, options);
        if (known.length > 0) return singleMatch(known, ref);
        // The pod may have been created without the shim, or while it was not running.
        const refreshed = registry.refreshPods(options);
        if (await isLate(refreshed)) {
          // The status of another pod hangs in the runtime.
          const learned = await matching(ref, options);
          const ready = await Promise.all(learned.map(({ sandboxId }) => isReady(sandboxId)));
          const live = learned.filter((_, at) => ready[at]);
          if (live.length > 0) return singleMatch(live, ref);
          await refreshed;
        }
        return singleMatch(await matching(ref, options), ref);
      }),
    list: (signal) => withBackend(() => listPods(given, signal)),
    listContainers: (signal) => withBackend(() => registry.refreshContainers(signal && { signal })),
    describe: (sandboxId, listed, signal) => withBackend(() => readPodView(sandboxId, listed, signal)),
    containerName(sandboxId, containerId) {
      const known = registry.container(containerId);
      return known?.sandboxId === sandboxId ? known.name : containerId;
    },
  };
}

/** Whether the work takes longer than {@link LIST_MS}, or fails. */
async function isLate(work: Promise<void>): Promise<boolean> {
  const isDone = within(
    LIST_MS,
    work.then(() => true),
  );
  return !((await isDone.catch(() => false)) ?? false);
}

async function byId(
  registry: Pick<Registry, 'pod' | 'pods'>,
  id: string,
  options: CallOptions | undefined,
): Promise<PodDescription[]> {
  const known = registry.pods.filter(({ sandboxId }) => sandboxId === id);
  if (known.length > 0) return known;
  const matching = registry.pods.filter(({ sandboxId }) => sandboxId.startsWith(id));
  if (matching.length > 0) return matching;
  const asked = await registry.pod(id, options);
  return asked === undefined ? [] : [asked];
}

async function listPods(
  { registry, volumes }: Pick<PodDirectoryOptions, 'registry' | 'volumes'>,
  signal: CancelSignal | undefined,
): Promise<readonly ListedPod[]> {
  const containers = await registry.refresh(signal && { signal });
  const pods = inOrder(registry.pods.map(identityOf));
  const ofAll = volumes.atOnce();
  return pods.map((pod) => ({ pod, containers: containers.get(pod.sandboxId) ?? [], volumes: ofAll }));
}

const orderOf = ({ namespace, name, sandboxId }: PodIdentity): string => [namespace, name, sandboxId].join('\0');
/** Sorts pods by their names, each of which is composed once. */
const inOrder = (pods: readonly PodIdentity[]): readonly PodIdentity[] =>
  pods
    .map((pod) => ({ pod, order: orderOf(pod) }))
    .sort((one, other) => (one.order < other.order ? -1 : 1))
    .map(({ pod }) => pod);

/** Runs calls to the backend, and maps their errors to a ShimError. */
async function withBackend<Result>(call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    throw isServiceError(error) ? backendFailure(error) : error;
  }
}

function singleMatch(pods: readonly PodDescription[], ref: PodRef): PodIdentity {
  const [pod, ...more] = pods;
  const asked = textOf(ref);
  if (pod === undefined) {
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod on this node has ${ref.by} ${asked}`, { asked });
  }
  if (more.length === 0) return identityOf(pod);
  const found = pods
    .map(({ sandboxId }) => sandboxId)
    .toSorted()
    .slice(0, 4);
  throw new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.AMBIGUOUS_POD,
    `${ref.by} ${asked} matches ${pods.length} sandboxes: ${found.join(', ')}`,
    { asked, found: found.join(', ') },
  );
}

function textOf(ref: PodRef): string {
  switch (ref.by) {
    case 'sandbox_id':
      return ref.id;
    case 'uid':
      return ref.uid;
    case 'name':
      return fullName(ref);
  }
}

/** Throws INVALID_VALUE for unusual characters. Ids, uids and names go to the backend but never become paths. */
function assertRef(ref: PodRef): void {
  const parts: [string, string][] =
    ref.by === 'name'
      ? [
          ['pod.name.namespace', ref.namespace],
          ['pod.name.name', ref.name],
        ]
      : [[`pod.${ref.by}`, textOf(ref)]];
  for (const [field, text] of parts) {
    if (/^[0-9A-Za-z][0-9A-Za-z_.-]{0,252}$/.test(text)) continue;
    throw invalid(field, text, 'expected 1 to 253 letters, digits, "-", "_" and "."');
  }
}

/** A pod with its values, or with the reason why they cannot be read. */
export interface ViewedPod {
  /** The pod's index in the list. */
  readonly at: number;
  readonly pod: PodIdentity;
  readonly view: PodView | Explanation;
}

/**
 * Describes pods one by one: latency does not matter to people and agents, and this keeps the load on the node low. An
 * unreadable pod, which may be ending, does not hide the others. After the first BACKEND_UNAVAILABLE, the backend is
 * not asked again, because each call might wait equally long; the other pods get the same error.
 *
 * The registry learns only of containers that are created through the shim. So the containers are listed again at the
 * end, and a pod with additional containers is described again: no view lacks a container that existed when its
 * description began. One list for all pods is cheap; containerd reads all its containers for the list of one pod, too.
 * @param signal rejects with its reason once it aborts
 */
export async function* viewsOf(
  { describe, listContainers }: Pick<PodDirectory, 'describe' | 'listContainers'>,
  pods: readonly ListedPod[],
  signal?: CancelSignal,
): AsyncGenerator<ViewedPod, void> {
  let gone: Explanation | undefined;
  for (const [at, listed] of pods.entries()) {
    const { pod } = listed;
    const view = gone ?? (await describe(pod.sandboxId, listed, signal).catch(unreadable));
    signal?.throwIfAborted();
    if ('reason' in view && view.reason === Reason.BACKEND_UNAVAILABLE) gone = view;
    yield { at, pod, view };
  }
  if (gone !== undefined || pods.length === 0) return;
  // If the backend has become unavailable since then, the earlier views stay valid.
  const now = await listContainers(signal).catch(unreadable);
  signal?.throwIfAborted();
  if ('reason' in now) return;
  // The list of a large node has taken its share of this turn of the event loop.
  await nextTurn();
  for (const [at, { pod, containers: before, volumes }] of pods.entries()) {
    const containers = now.get(pod.sandboxId) ?? [];
    if (!hasMore(containers, before)) continue;
    const view = await describe(pod.sandboxId, { containers, volumes }, signal).catch(unreadable);
    signal?.throwIfAborted();
    // The earlier view is better than the backend's present error.
    if ('reason' in view && view.reason === Reason.BACKEND_UNAVAILABLE) return;
    yield { at, pod, view };
  }
}

function hasMore(now: ListedContainers, before: ListedContainers): boolean {
  // Usually nothing has changed, and the runtime lists the containers in the same order.
  if (now.every(({ id }, at) => id === before[at]?.id)) return false;
  const known = new Set(before.map(({ id }) => id));
  return now.some(({ id }) => !known.has(id));
}

function unreadable(error: unknown): Explanation {
  if (!(error instanceof ShimError)) throw error;
  return { reason: error.reason, message: error.message };
}
