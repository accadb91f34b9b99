import { bytes, microseconds } from '../../../core/quantities/index.ts';
import { type ContainerDescription, ContainerState, type PodDescription } from '../../../runtime/index.ts';
import {
  type DeclarePodParts,
  type DeclaredPod,
  type EffectiveLimits,
  type PodState,
  declarePod,
  storedLimits,
  withRunning,
} from '../../../sandbox/index.ts';
import type { ContainerStep } from '../../model/index.ts';
import { ifTheyArrive, stateWith } from '../../plan/index.ts';
import type { NamedContainer, PodChange } from './replaced-containers.ts';

/** Returns a pod in which a container starts, before and after its limits change. */
export function restartedContainer(
  state: PodState,
  container: NamedContainer,
  { before, after }: { readonly before: EffectiveLimits; readonly after: EffectiveLimits },
  unanswered: readonly ContainerStep[] = [],
): PodChange {
  const present = ifTheyArrive(stateWithContainer(state, container, before), unanswered);
  return { state, before: present, after: stateWith(present, [{ id: container.containerId, ...after }]) };
}

/** Returns the pod as if this container ran with these limits. */
function stateWithContainer(state: PodState, container: NamedContainer, limits: EffectiveLimits): PodState {
  const { containers, declared } = state;
  const { containerId: id } = container;
  return {
    ...state,
    containers: [...containers.filter((other) => other.id !== id), { id, ...limits }],
    ...(declared && { declared: withRunning(declared, container) }),
  };
}

/**
 * Returns the limits with which the previous container of this name counts in the pod limit. Undefined if the runtime stores none. One
 * that runs or has failed counts with its stored limits.
 */
export async function limitsBeforeRestart(
  parts: DeclarePodParts,
  pod: PodDescription,
  { name }: NamedContainer,
  previous: ContainerDescription,
): Promise<EffectiveLimits | undefined> {
  const stored = storedLimits(previous.resources);
  if (stored === undefined || previous.state !== ContainerState.EXITED || previous.exitCode !== 0) return stored;
  const listed = await parts.registry.listContainers(pod);
  const withoutNewer = listed.filter(({ id, metadata }) => metadata?.name !== name || id === previous.containerId);
  return countedLimits(await declarePod(parts, pod, withoutNewer), name, stored);
}

/**
 * Returns the limits with which a container counts that does not run: 0 if it ended well and no source lists it. The pod limit may not
 * have room for it then. A limit that it did not have stays absent: it did not take the pod limit away.
 */
export function countedLimits({ containers }: DeclaredPod, name: string, stored: EffectiveLimits): EffectiveLimits {
  if (!containers.some((one) => one.name === name && one.isUncounted === true)) return stored;
  const { memory, cpu } = stored;
  return {
    memory: memory === 'max' ? memory : bytes(0),
    cpu: cpu.quota === 'max' ? cpu : { ...cpu, quota: microseconds(0) },
  };
}
