import type { KubeletState } from '../../kubelet/index.ts';
import type { Backend, PodDescription } from '../../runtime/index.ts';
import { identityOf } from '../pod-identity.ts';
import type { DeclaredPod } from './declared-pod.ts';
import { fromSpec } from './from-spec.ts';
import { newestContainers } from './newest-containers.ts';
import type { PodSpecs } from './pod-spec.ts';

export interface DeclarePodParts {
  readonly backend: Backend;
  readonly specs: PodSpecs;
  readonly kubelet: KubeletState;
}

/** Returns a pod as it is declared, from the best source that knows it. Rejects when the backend cannot be asked. */
export async function declarePod(parts: DeclarePodParts, pod: PodDescription): Promise<DeclaredPod> {
  const newest = await newestContainers(parts, pod);
  parts.kubelet.refresh();
  const entry = parts.kubelet.allocated(pod.metadata.uid);
  const spec = parts.specs.of(identityOf(pod));
  if (spec !== undefined) return fromSpec(spec, entry, newest);
  return { source: 'inference', containers: [], volumes: new Map() };
}
