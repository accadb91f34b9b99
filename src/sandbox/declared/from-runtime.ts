import type { DeclaredContainer, DeclaredPod } from './declared-pod.ts';
import {
  idAndPhase,
  isOfKubelet,
  isSurelyNoInit,
  type NewestContainer,
  type NewestContainers,
} from './newest-containers.ts';
import type { StoredContainers } from './stored-containers.ts';

/**
 * Returns the pod as far as the runtime's containers show it. kubelet's labels and annotations (pkg/kubelet/kuberuntime/labels.go,
 * 1.33 to 1.36) tell the name of a container and a preStop hook, and no kind. A container that does not run counts with its stored
 * limits if it was created or if its end was a failure: it is about to start, again. One that ended well counts only if it has a
 * preStop hook. It may be an init container that has completed, or an app container that kubelet restarts.
 */
export function fromRuntime(newest: NewestContainers, stored: StoredContainers): DeclaredPod {
  const all = [...newest.values()];
  return {
    source: all.some(isOfKubelet) ? 'kubelet-labels' : 'inference',
    containers: all.map((one) => containerOf(one, stored)),
    volumes: new Map(),
  };
}

function containerOf(one: NewestContainer, stored: StoredContainers): DeclaredContainer {
  const found = stored.get(one.id);
  const shares = found?.shares;
  const base = {
    name: one.name,
    ...idAndPhase(one),
    ...(found && { limits: found.limits }),
    ...(shares !== undefined && { shares }),
  };
  if (isSurelyNoInit(one)) return { ...base, kind: 'app' };
  const hasEndedWell = one.phase === 'ended' && found?.exitCode === 0;
  return { ...base, kind: 'unknown', ...(hasEndedWell && { isUncounted: true as const }) };
}
