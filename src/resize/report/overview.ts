import { ShimError } from '../../core/errors/index.ts';
import type { PodDirectory } from './pod-directory.ts';
import type { PodView } from './pod-view.ts';
import type { RecentResize, RecentResizes } from '../history/index.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/** The node at a glance. */
export interface Overview {
  readonly pods: readonly PodSummary[];
  /** The last resizes, the newest first. */
  readonly recent: readonly RecentResize[];
}

export interface PodSummary {
  readonly pod: PodIdentity;
  /** Or why it cannot be read. */
  readonly view: PodView | { readonly reason: string; readonly message: string };
}

/** Rejects with BACKEND_UNAVAILABLE. One pod that cannot be read (it may be ending) does not hide the others. */
export async function overviewOf(context: { readonly recent?: RecentResizes }, pods: PodDirectory): Promise<Overview> {
  const seen: PodSummary[] = [];
  for (const pod of await pods.list()) {
    try {
      seen.push({ pod, view: await pods.describe(pod.sandboxId) });
    } catch (error) {
      if (!(error instanceof ShimError)) throw error;
      seen.push({ pod, view: { reason: error.reason, message: error.message } });
    }
  }
  return { pods: seen, recent: context.recent?.all ?? [] };
}
