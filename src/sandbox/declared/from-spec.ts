import type { PodEntry } from '../../kubelet/index.ts';
import type { DeclaredContainer, DeclaredPod } from './declared-pod.ts';
import type { PodSpec, SpecContainer } from './pod-spec.ts';
import { isUsable } from './usable-entry.ts';
import { type NewestContainers, idAndPhase } from './newest-containers.ts';

/**
 * Returns the pod as its spec declares it. The limits and requests are those that kubelet has admitted, where its state
 * has them: the spec has what a user asks for, which kubelet may have deferred (KEP-1287).
 */
export function fromSpec(spec: PodSpec, entry: PodEntry | undefined, newest: NewestContainers): DeclaredPod {
  const { qosClass, priority, requests, volumes, hasEnded: isOver } = spec;
  const isFixed = ({ name, kind }: SpecContainer): boolean =>
    kind === 'init' && isUsable(entry) && !entry.containers.has(name);
  return {
    source: 'spec',
    containers: spec.containers.map((container): DeclaredContainer => {
      const limits = entry?.containers.get(container.name) ?? container.limits;
      const admitted = entry?.requests?.containers.get(container.name) ?? container.requests;
      const phase = hasEnded(spec, container, newest)
        ? { state: 'ended' as const }
        : idAndPhase(newest.get(container.name));
      const base = { ...container, limits, requests: admitted, ...phase };
      return isFixed(container) ? { ...base, isFixed: true } : base;
    }),
    limits: entry?.pod ?? spec.limits,
    requests: entry?.requests?.pod ?? requests,
    ...(qosClass && { qosClass }),
    priority,
    ...(isOver && { hasEnded: isOver }),
    volumes,
  };
}

/**
 * Whether an ordinary init container has ended and was removed from the runtime: kubelet creates the next containers only after its end.
 * An ephemeral container says nothing: kubelet creates it at any time.
 */
const hasEnded = ({ containers }: PodSpec, container: SpecContainer, newest: NewestContainers): boolean =>
  container.kind === 'init' &&
  !newest.has(container.name) &&
  containers
    .slice(containers.indexOf(container) + 1)
    .some(({ name, kind }) => kind !== 'ephemeral' && newest.has(name));
