import { Reason, ShimError } from '../../core/errors/index.ts';
import type { Explanation } from '../model/index.ts';
import type { ListedContainers, PodIdentity } from '../../sandbox/index.ts';
import type { ListedPod, PodDirectory } from './pod-directory.ts';
import type { PodView } from './pod-view.ts';

/** A pod with its values, or with why they cannot be read. */
export interface ViewedPod {
  /** Its place in the list. */
  readonly at: number;
  readonly pod: PodIdentity;
  readonly view: PodView | Explanation;
}

/**
 * Describes pods one by one: latency does not matter to people and agents, and this keeps the load on the node low. An unreadable pod,
 * which may be ending, does not hide the others. After the first BACKEND_UNAVAILABLE the backend is asked no more, because each call might
 * wait for as long as that one; the other pods have the same error.
 *
 * The registry learns which containers are created through the shim, and not of others. So the containers are listed once more at the
 * end, and a pod with more of them comes again, in place of what it had: no view lacks a container that existed when its description
 * began. One list for all pods is cheap; containerd reads all its containers for the list of one pod, too.
 * @param signal once it aborts, nobody waits for the views any more: rejects with its reason
 */
export async function* viewsOf(
  { describe, listContainers }: Pick<PodDirectory, 'describe' | 'listContainers'>,
  pods: readonly ListedPod[],
  signal?: AbortSignal,
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
  // A backend that has gone since says nothing of what was read before.
  const now = await listContainers(signal).catch(unreadable);
  signal?.throwIfAborted();
  if ('reason' in now) return;
  for (const [at, { pod, containers: before, volumes }] of pods.entries()) {
    const containers = now.get(pod.sandboxId) ?? [];
    if (!hasMore(containers, before)) continue;
    const view = await describe(pod.sandboxId, { containers, volumes }, signal).catch(unreadable);
    signal?.throwIfAborted();
    // What was read before is better than that the backend has gone since.
    if ('reason' in view && view.reason === Reason.BACKEND_UNAVAILABLE) return;
    yield { at, pod, view };
  }
}

function hasMore(now: ListedContainers, before: ListedContainers): boolean {
  // As a rule nothing has changed, and the runtime lists them in the same order.
  if (now.every(({ id }, at) => id === before[at]?.id)) return false;
  const known = new Set(before.map(({ id }) => id));
  return now.some(({ id }) => !known.has(id));
}

function unreadable(error: unknown): Explanation {
  if (!(error instanceof ShimError)) throw error;
  return { reason: error.reason, message: error.message };
}
