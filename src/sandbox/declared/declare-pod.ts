import type { KubeletState, PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { identityOf } from '../pod-identity.ts';
import type { ListedContainers, Registry } from '../registry.ts';
import type { DeclaredPod } from './declared-pod.ts';
import { fromKubeletState } from './from-kubelet-state.ts';
import { fromRuntime } from './from-runtime.ts';
import { fromSpec } from './from-spec.ts';
import { type NewestContainers, newestOf } from './newest-containers.ts';
import type { PodSpecs } from './pod-spec.ts';
import { qosOfCgroup } from './qos-of-cgroup.ts';
import { storedContainers } from './stored-containers.ts';
import { isUsable } from './usable-entry.ts';

export interface DeclarePodParts {
  readonly registry: Pick<Registry, 'describeContainer' | 'listContainers'>;
  readonly specs: PodSpecs;
  /** kubelet's checkpoints. */
  readonly kubelet: KubeletState;
}

/**
 * Returns a pod as it is declared (KEP-1287: its allocated resources), from the best source that knows it. Rejects when the backend
 * cannot be asked.
 * @param listed the pod's containers, if the caller has just listed them
 */
export async function declarePod(
  parts: DeclarePodParts,
  pod: PodDescription,
  listed?: ListedContainers,
): Promise<DeclaredPod> {
  const newest = newestOf(listed ?? (await parts.registry.listContainers(pod)));
  parts.kubelet.refresh();
  const entry = parts.kubelet.allocated(pod.metadata.uid);
  const spec = parts.specs.of(identityOf(pod));
  const declared = spec === undefined ? await withoutSpec(parts, entry, newest) : fromSpec(spec, entry, newest);
  const qosClass = declared.qosClass ?? qosOfCgroup(pod);
  return { ...declared, ...(qosClass && { qosClass }) };
}

async function withoutSpec(
  parts: DeclarePodParts,
  entry: PodEntry | undefined,
  newest: NewestContainers,
): Promise<DeclaredPod> {
  const isListed = (name: string): boolean => entry?.containers.has(name) ?? false;
  const toAsk = [...newest.values()].filter(
    ({ name, phase }) => phase !== 'running' || (entry !== undefined && !isListed(name)),
  );
  const stored = await storedContainers(parts, toAsk);
  return isUsable(entry) ? fromKubeletState(entry, newest, stored) : fromRuntime(newest, stored);
}
