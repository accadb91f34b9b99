import type { PodEntry } from '../../kubelet/index.ts';

/** Whether an entry lists containers and was completely understood: otherwise one that it does not list may only be missing. */
export const isUsable = (entry: PodEntry | undefined): entry is PodEntry =>
  entry !== undefined && entry.isComplete && entry.containers.size > 0;
