import type { CancelSignal } from '../../core/index.ts';
import type { ResizeHistory } from '../history/history.ts';
import type { HistoryEntry } from '../history/history-entry.ts';
import type { RecentResize, RecentResizes } from '../history/recent-resizes.ts';
import type { Explanation } from '../plan/failures.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import { type PodDirectory, viewsOf } from './pod-directory.ts';
import type { PodView } from './pod-view.ts';

/** Number of resizes in the overview. */
const SHOWN = 50;

/** An overview of the node. */
export interface Overview {
  readonly pods: readonly PodSummary[];
  /** The last resizes, newest first. */
  readonly recent: readonly RecentResize[];
  /** The last resizes with who asked for them, rejected ones included; newest first. */
  readonly history: readonly HistoryEntry[];
}

export interface PodSummary {
  readonly pod: PodIdentity;
  /** The pod's values, or why they cannot be read. */
  readonly view: PodView | Explanation;
  /** The stored resizes of the pod, the newest first. */
  readonly history: readonly HistoryEntry[];
}

/** Rejects with BACKEND_UNAVAILABLE if the pods cannot be listed, and with the signal's reason once it aborts. */
export async function overviewOf(
  context: { readonly recent?: RecentResizes; readonly history: ResizeHistory },
  pods: PodDirectory,
  signal?: CancelSignal,
): Promise<Overview> {
  const seen: PodSummary[] = [];
  for await (const { at, pod, view } of viewsOf(pods, await pods.list(signal), signal)) {
    seen[at] = { pod, view, history: context.history.ofPod(pod.sandboxId) };
  }
  const history = context.history.all.toReversed().slice(0, SHOWN);
  return { pods: seen, recent: context.recent?.all ?? [], history };
}
