import { ShimError } from '../../core/errors/index.ts';
import type { PodDirectory } from './pod-directory.ts';
import type { PodView } from './pod-view.ts';
import type { HistoryEntry, RecentResize, RecentResizes, ResizeHistory } from '../history/index.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/** Number of resizes in the overview. */
const SHOWN = 50;

/** An overview of the node. */
export interface Overview {
  readonly pods: readonly PodSummary[];
  /** The last resizes, newest first. */
  readonly recent: readonly RecentResize[];
  /** The last resizes with who asked for them, those that were refused included; newest first. */
  readonly history: readonly HistoryEntry[];
}

export interface PodSummary {
  readonly pod: PodIdentity;
  /** The pod's values, or why they cannot be read. */
  readonly view: PodView | { readonly reason: string; readonly message: string };
  /** The pod's newest resize; absent if there is none. */
  readonly last?: HistoryEntry;
}

/** Reads the overview. An unreadable pod, which may be ending, does not hide the others. Rejects with BACKEND_UNAVAILABLE. */
export async function overviewOf(
  context: { readonly recent?: RecentResizes; readonly history: ResizeHistory },
  pods: PodDirectory,
): Promise<Overview> {
  const seen: PodSummary[] = [];
  for (const pod of await pods.list()) {
    const [last] = context.history.ofPod(pod.sandboxId);
    seen.push({ pod, view: await viewOf(pods, pod), ...(last && { last }) });
  }
  const history = context.history.all.toReversed().slice(0, SHOWN);
  return { pods: seen, recent: context.recent?.all ?? [], history };
}

async function viewOf(pods: PodDirectory, { sandboxId }: PodIdentity): Promise<PodSummary['view']> {
  try {
    return await pods.describe(sandboxId);
  } catch (error) {
    if (!(error instanceof ShimError)) throw error;
    return { reason: error.reason, message: error.message };
  }
}
