import type { CgroupTree } from '../cgroups/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import { type DeclarePodParts, declarePod } from './declared/index.ts';
import type { ListedContainers } from './registry.ts';
import type { PodState, VolumeState } from './pod-state.ts';
import { readPod } from './read-pod.ts';

/**
 * Reads the live values of a pod, and what it declares: the rules of a resize hold for all its containers. Throws as
 * {@link readPod}. Rejects when the backend cannot be asked.
 * @param listed the pod's containers, if the caller has just listed them
 */
export async function readDeclaredPod(
  parts: DeclarePodParts & { readonly tree: CgroupTree },
  pod: PodDescription,
  volumes: readonly VolumeState[],
  listed?: ListedContainers,
): Promise<PodState> {
  const declared = await declarePod(parts, pod, listed);
  return readPod(parts.tree, pod, volumes, declared);
}
