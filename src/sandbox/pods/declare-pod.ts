/** A pod as it is declared: by its spec, kubelet's state and the runtime, in this order. */

import { driverOf, qosClassOf } from '../../cgroups/index.ts';
import type { KubeletState, PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { ListedContainers } from './container-lists.ts';
import type { DeclaredContainer, DeclaredPod, QosClass } from './declared-pod.ts';
import { identityOf } from './pod-identity.ts';
import type { PodSpec, PodSpecs, SpecContainer } from './pod-spec.ts';
import type { Registry } from './registry.ts';
import {
  idAndPhase,
  isEmpty,
  isOfKubelet,
  isSurelyNoInit,
  type NewestContainer,
  type NewestContainers,
  newestOf,
  type StoredContainer,
  type StoredContainers,
  storedContainers,
} from './runtime-containers.ts';

/** The sources of a pod's declaration. */
export interface DeclarationSources {
  readonly registry: Pick<Registry, 'describeContainer' | 'listContainers'>;
  readonly specs: PodSpecs;
  /** kubelet's checkpoints. */
  readonly kubelet: KubeletState;
}

/**
 * Returns a pod as it is declared (KEP-1287: its allocated resources), from the best source that knows it. Rejects when
 * the backend cannot be asked.
 * @param listed the pod's containers, if the caller has just listed them
 */
export async function declarePod(
  sources: DeclarationSources,
  pod: PodDescription,
  listed?: ListedContainers,
): Promise<DeclaredPod> {
  const newest = newestOf(listed ?? (await sources.registry.listContainers(pod)));
  sources.kubelet.refresh();
  const entry = sources.kubelet.allocated(pod.metadata.uid);
  const spec = sources.specs.of(identityOf(pod));
  const declared = spec === undefined ? await withoutSpec(sources, entry, newest) : fromSpec(spec, entry, newest);
  const qosClass = declared.qosClass ?? qosOfCgroup(pod);
  return { ...declared, ...(qosClass && { qosClass }) };
}

async function withoutSpec(
  sources: DeclarationSources,
  entry: PodEntry | undefined,
  newest: NewestContainers,
): Promise<DeclaredPod> {
  const isListed = (name: string): boolean => entry?.containers.has(name) ?? false;
  const toAsk = [...newest.values()].filter(
    ({ name, phase }) => phase !== 'running' || (entry !== undefined && !isListed(name)),
  );
  const stored = await storedContainers(sources, toAsk);
  return isUsable(entry) ? fromKubeletState(entry, newest, stored) : fromRuntime(newest, stored);
}

/**
 * Returns the pod as its spec declares it. The limits and requests that kubelet has admitted take precedence: kubelet
 * may have deferred the values that a user requests in the spec (KEP-1287).
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
 * Whether an ordinary init container has ended and was removed from the runtime: kubelet creates the next containers
 * only after its end. Ephemeral containers are ignored: kubelet creates them at any time.
 */
const hasEnded = ({ containers }: PodSpec, container: SpecContainer, newest: NewestContainers): boolean =>
  container.kind === 'init' &&
  !newest.has(container.name) &&
  containers
    .slice(containers.indexOf(container) + 1)
    .some(({ name, kind }) => kind !== 'ephemeral' && newest.has(name));

/**
 * Returns the pod as kubelet's `allocated_pods_state` declares it. Up to 1.35 it lists app containers and sidecars, so
 * an unlisted container is an init or an ephemeral container. Since 1.36 it lists ordinary init containers too (kubelet
 * pkg/kubelet/allocation/allocation_manager.go, IsResizableContainer), and does not mark them: a listed container that
 * may be one is `unknown`, and the pod limit itself shows whether kubelet counts it as one.
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
      // kubelet creates app containers only after all init containers have ended: a container created earlier is a
      // sidecar.
      ...created.map((one, at) => (at < lastInit && one.kind === 'app' ? { ...one, kind: 'sidecar' as const } : one)),
      ...listed
        .filter((name) => !newest.has(name))
        .map((name): DeclaredContainer => {
          const limits = entry.containers.get(name) ?? {};
          // It may not be created yet, or may have ended and been removed from the runtime.
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
  /** Whether each listed container has been created, so that no ordinary init container is about to run. */
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

/**
 * Returns the pod as far as the runtime's containers show it. kubelet's labels and annotations
 * (pkg/kubelet/kuberuntime/labels.go, 1.33 to 1.36) contain a container's name and preStop hook, but not its kind. A
 * container that does not run counts with its stored limits if it was created or has failed, because it is about to
 * start. A container that ended successfully counts only if it has a preStop hook: otherwise it may be a completed init
 * container, or an app container that kubelet restarts.
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

/** Whether an entry lists containers and was fully understood. Otherwise an unlisted container may only be missing. */
const isUsable = (entry: PodEntry | undefined): entry is PodEntry =>
  entry !== undefined && entry.isComplete && entry.containers.size > 0;

/** Returns a pod's QoS class from the parent of its cgroup. Undefined if the parent is not a cgroup of kubelet. */
export function qosOfCgroup({ cgroupParent }: Pick<PodDescription, 'cgroupParent'>): QosClass | undefined {
  const cgroup = driverOf(cgroupParent).podCgroup(cgroupParent);
  return cgroup === undefined ? undefined : qosClassOf(cgroup);
}
