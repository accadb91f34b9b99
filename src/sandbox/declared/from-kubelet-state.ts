import type { PodEntry } from '../../kubelet/index.ts';
import { isEmpty } from './amounts.ts';
import type { DeclaredContainer, DeclaredPod } from './declared-pod.ts';
import { idAndPhase, isSurelyNoInit, type NewestContainer, type NewestContainers } from './newest-containers.ts';
import type { StoredContainer, StoredContainers } from './stored-containers.ts';

/**
 * Returns the pod as kubelet's `allocated_pods_state` declares it. Up to 1.35 it lists app containers and sidecars, so that a container
 * that it does not list is an init or an ephemeral container. Since 1.36 it lists ordinary init containers too (kubelet
 * pkg/kubelet/allocation/allocation_manager.go, IsResizableContainer), and does not mark them: a listed container that may be one is
 * `unknown`, and the pod limit itself shows whether kubelet counts it as one.
 */
export function fromKubeletState(entry: PodEntry, newest: NewestContainers, stored: StoredContainers): DeclaredPod {
  const listed = [...entry.containers.keys()];
  const isInitialized = listed.every((name) => newest.has(name));
  const parts = { entry, stored, isInitialized, last: [...newest.values()].at(-1) };
  const created = [...newest.values()].map((one) => createdContainer(parts, one));
  const lastInit = created.findLastIndex(({ kind }) => kind === 'init');
  return {
    source: 'kubelet-state',
    containers: [
      // kubelet creates no app container before all init containers have ended: what it created before one of them is a sidecar.
      ...created.map((one, at) => (at < lastInit && one.kind === 'app' ? { ...one, kind: 'sidecar' as const } : one)),
      ...listed
        .filter((name) => !newest.has(name))
        .map((name): DeclaredContainer => {
          const limits = entry.containers.get(name) ?? {};
          // It may wait to be created, or have ended and been removed from the runtime.
          return { name, kind: 'unknown', state: 'declared', limits, ...requestsOf(entry, name), mayBeInit: true };
        }),
    ],
    ...(entry.pod && { limits: entry.pod }),
    ...(entry.requests?.pod && { requests: entry.requests.pod }),
    volumes: new Map(),
  };
}

interface Parts {
  readonly entry: PodEntry;
  readonly stored: StoredContainers;
  /** Whether each listed container has been created: then no ordinary init container is about to run. */
  readonly isInitialized: boolean;
  /** The container that was created last. */
  readonly last: NewestContainer | undefined;
}

function createdContainer(parts: Parts, one: NewestContainer): DeclaredContainer {
  const { entry, stored, isInitialized, last } = parts;
  const { name } = one;
  const listed = entry.containers.get(name);
  if (listed === undefined) return unlistedContainer(parts, one, stored.get(one.id));
  const hasEndedWell = one.phase === 'ended' && stored.get(one.id)?.exitCode === 0;
  const mayBeInit = !isSurelyNoInit(one) && (hasEndedWell || (!isInitialized && one === last));
  const base = { name, ...idAndPhase(one), limits: listed, ...requestsOf(entry, name) };
  return mayBeInit ? { ...base, kind: 'unknown', mayBeInit } : { ...base, kind: 'app' };
}

function requestsOf({ requests }: PodEntry, name: string): Pick<DeclaredContainer, 'requests'> {
  const found = requests?.containers.get(name);
  return found === undefined ? {} : { requests: found };
}

function unlistedContainer(
  { entry, isInitialized }: Parts,
  one: NewestContainer,
  stored: StoredContainer | undefined,
): DeclaredContainer {
  const base = { name: one.name, ...idAndPhase(one), ...(stored && { limits: stored.limits }) };
  // No ordinary init container runs once the others have been created, until the pod gets another sandbox.
  if (isInitialized && one.phase === 'running') return { ...base, kind: 'ephemeral' };
  // An ephemeral container has no limits of its own (pkg/apis/core/validation), but inherits pod-level ones.
  const hasOwnLimits = entry.pod === undefined && stored !== undefined && !isEmpty(stored.limits);
  return hasOwnLimits ? { ...base, kind: 'init', isFixed: true } : { ...base, kind: 'unknown', isUncounted: true };
}
