import { basename } from 'node:path';
import { type CgroupPath, type CgroupTree, containerIdOf, restoreMarkedHigh } from '../../cgroups/index.ts';
import type { Bytes, Clock, Limit } from '../../core/index.ts';
import type { KubeletState, PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { PodOutcome } from '../history/outcomes.ts';
import type { Node } from '../node.ts';
import { compareLimits, sameMemory } from '../plan/amounts.ts';
import { declarePod } from '../pods/declare-pod.ts';
import type { DeclaredPod } from '../pods/declared-pod.ts';
import { containerSubject, podSubject } from '../pods/names.ts';
import { lockKeyOf, newestSandbox } from '../pods/pod-identity.ts';
import type { PodState } from '../pods/pod-state.ts';
import { hasPodCgroup, podCgroup, readPod } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';
import type { Decrease, HoldJournal, PendingDecreases } from './decrease.ts';
import { DecreaseReclaimer } from './decrease-reclaimer.ts';
import { hasPendingMemory } from './pending-resize.ts';
import { pendingSwapOf } from './pending-swap.ts';

/** Creates the node's decrease reclaimer. It does nothing until its `check` is called. */
export function createDecreaseReclaimer(node: Node, clock: Clock): DecreaseReclaimer {
  const { registry, kubelet, lock, outcomes, tree, log, counters } = node;
  const sandboxes = (uid: string): readonly PodDescription[] =>
    registry.pods.filter(({ metadata }) => metadata.uid === uid);
  const locks = (uid: string): ReadonlySet<string> => new Set(sandboxes(uid).map(lockKeyOf));
  const newest = (uid: string): PodDescription | undefined => newestSandbox(registry, uid);
  const declarations = new KnownDeclarations();
  return new DecreaseReclaimer({
    clock,
    log,
    counters,
    tree,
    holds: holdJournal(node, newest),
    pods: () => podsWithPendingMemory(node, declarations),
    isPending: (uid) =>
      isMemoryPending(kubelet, declarations, uid) && registry.pods.some(({ metadata }) => metadata.uid === uid),
    entries: (uid) => [kubelet.allocated(uid), kubelet.actuated(uid)],
    decreases: async (uid) => {
      const pod = newest(uid);
      return pod === undefined || !hasPodCgroup(pod) ? undefined : decreasesOf(node, pod, declarations);
    },
    refusalOf(uid, list) {
      const pod = newest(uid);
      return pod && errorFor(outcomes.of(pod.sandboxId), list);
    },
    isBusy: (uid) => [...locks(uid)].some((key) => lock.isHeld(key)),
    idle: async (uid) => {
      for (const key of locks(uid)) if (lock.isHeld(key)) await lock.run(key, () => Promise.resolve());
    },
  });
}

/** Returns the error of the last request if it failed and it, or an earlier one, requested one of these limits. */
function errorFor({ desired, lastError }: PodOutcome, list: readonly Decrease[]): PodOutcome['lastError'] {
  const isAsked = ({ cgroup, to, isPod }: Decrease): boolean => {
    const id = containerIdOf(basename(cgroup)) ?? '';
    const asked = isPod === true ? desired.pod?.memory : desired.containers?.get(id)?.memory;
    return asked !== undefined && sameMemory(asked, to);
  };
  return list.some(isAsked) ? lastError : undefined;
}

function holdJournal({ tree, journal }: Node, podOf: (uid: string) => PodDescription | undefined): HoldJournal {
  return {
    async begin(uid, cgroups) {
      await journal.restored();
      const pod = podOf(uid);
      if (pod === undefined || journal.transactionOf(pod) !== undefined) return false;
      for (const high of journal.holdsOf(pod)) await restoreMarkedHigh(tree, high);
      const highs = cgroups.map((cgroup) => ({ cgroup, memoryHigh: tree.readHigh(cgroup) }));
      await journal.setHolds(pod, highs);
      return true;
    },
    async lowers(uid, high) {
      const pod = podOf(uid);
      if (pod === undefined) return;
      const known = journal.holdsOf(pod);
      if (known.some(({ cgroup, memoryHigh }) => cgroup === high.cgroup && memoryHigh === high.memoryHigh)) return;
      await journal.setHolds(pod, [...known.filter(({ cgroup }) => cgroup !== high.cgroup), high]);
    },
    async end(uid) {
      const pod = podOf(uid);
      // The record of a removed pod is removed with it.
      if (pod !== undefined) await journal.setHolds(pod, []);
    },
    left(uid) {
      // A removed pod has nothing to recover.
      if (podOf(uid) !== undefined) journal.holdLeft();
    },
  };
}

function podsWithPendingMemory(
  { registry, kubelet }: { readonly registry: Registry; readonly kubelet: KubeletState },
  declarations: KnownDeclarations,
): string[] {
  const uids = new Set(registry.pods.map(({ metadata }) => metadata.uid));
  return [...uids].filter((uid) => isMemoryPending(kubelet, declarations, uid));
}

function isMemoryPending(kubelet: KubeletState, declarations: KnownDeclarations, uid: string): boolean {
  const [allocated, actuated] = [kubelet.allocated(uid), kubelet.actuated(uid)];
  // Once kubelet has applied what it admitted, both entries are usually the same object.
  if (allocated === undefined || allocated === actuated) return false;
  return hasPendingMemory(allocated, actuated, declarations.of(allocated));
}

/** Returns a pod's pending decreases. Rejects with CGROUP_UNAVAILABLE; with CgroupVanished if the pod has ended. */
async function decreasesOf(
  node: Node,
  pod: PodDescription,
  declarations: KnownDeclarations,
): Promise<PendingDecreases | undefined> {
  const allocated = node.kubelet.allocated(pod.metadata.uid);
  if (allocated === undefined) return undefined;
  const admitted = admittedBy(allocated);
  const state = await declarations.readPod(node, pod, allocated);
  await learnNames(node.registry, state);
  const pending = node.pending.of(pod, state);
  const actuated = node.kubelet.actuated(pod.metadata.uid);
  const ofPod = allocated.pod?.memory;
  const isPodLevel = ofPod !== undefined && ofPod !== actuated?.pod?.memory;
  const places = cgroupsOf(node.tree, pod, state);
  const textOf = (id: string): string =>
    `${containerSubject({ name: nameOf(node.registry, id) }, pod).text} of ${podSubject(pod).text}`;
  const limits = new Map([
    [podSubject(pod).text, state.memory] as const,
    ...state.containers.map(({ id, memory }) => [textOf(id), memory] as const),
  ]);
  if (pending === undefined) return { admitted, list: [], limits, swapAfter: new Map(), isPodLevel };
  const list: Decrease[] = [];
  for (const { id, memory } of state.containers) {
    const cgroup = places.get(id);
    const to = pending.containers.get(id)?.memory;
    if (cgroup === undefined || !isLower(to, memory)) continue;
    list.push({ text: textOf(id), cgroup, from: memory, to });
  }
  const { memory: podTo } = pending.pod;
  if (isLower(podTo, state.memory))
    list.push({ text: podSubject(pod).text, cgroup: podCgroup(pod), from: state.memory, to: podTo, isPod: true });
  const named = new Map([...places].map(([id, cgroup]) => [nameOf(node.registry, id), cgroup]));
  return { admitted, list, limits, swapAfter: pendingSwapOf(node.tree, named, { allocated, actuated }), isPodLevel };
}

/** Identifies the admitted limits and requests of memory. The swap limits are derived from both. */
function admittedBy({ containers, pod, requests }: PodEntry): string {
  const memoryOf = (amounts: PodEntry['containers'] = new Map()): unknown =>
    [...amounts].map(([name, { memory }]) => [name, memory]);
  return JSON.stringify([memoryOf(containers), pod?.memory, memoryOf(requests?.containers)]);
}

const isLower = (to: Limit<Bytes> | undefined, from: Limit<Bytes>): to is Bytes =>
  to !== undefined && to !== 'max' && compareLimits(to, from) < 0 && !sameMemory(from, to);

/** Looks up containers created while the shim was not running: kubelet's checkpoints use names, cgroups use ids. */
async function learnNames(registry: Registry, state: PodState): Promise<void> {
  for (const { id } of state.containers) if (!registry.knows(id)) await registry.describeContainer(id);
}

const nameOf = (registry: Registry, id: string): string =>
  registry.pods
    .flatMap(({ sandboxId }) => registry.containersOf(sandboxId))
    .find(({ containerId }) => containerId === id)?.name ?? id;

/** Returns the cgroups of the containers of a state, by id. */
function cgroupsOf(tree: CgroupTree, pod: PodDescription, { containers }: PodState): ReadonlyMap<string, CgroupPath> {
  const parent = podCgroup(pod);
  const ids = new Set(containers.map(({ id }) => id));
  return new Map(
    tree.children(parent).flatMap((name): [string, CgroupPath][] => {
      const id = containerIdOf(name);
      return id === undefined || !ids.has(id) ? [] : [[id, `${parent}/${name}`]];
    }),
  );
}

interface KnownDeclaration {
  /** The containers that had a cgroup when the pod was declared. */
  readonly present: string;
  readonly declared: DeclaredPod;
}

/**
 * The declarations of pods with a pending resize. A hold checks its pod every second, so the backend is asked again
 * only if the pod's entry in kubelet's checkpoint has changed, or if other containers have cgroups.
 */
export class KnownDeclarations {
  readonly #known = new WeakMap<PodEntry, KnownDeclaration>();

  /**
   * Reads the live values of a pod with its declaration, without the cgroups that ended containers have left. While the
   * backend cannot be asked, uses the last known declaration, or none. Throws as {@link readPod}.
   */
  async readPod(node: Node, pod: PodDescription, allocated: PodEntry): Promise<PodState> {
    const present = node.tree.children(podCgroup(pod)).flatMap((name) => containerIdOf(name) ?? []);
    return readPod(node.tree, pod, [], await this.#declared(node, pod, allocated, present.join()));
  }

  async #declared(
    node: Node,
    pod: PodDescription,
    allocated: PodEntry,
    present: string,
  ): Promise<DeclaredPod | undefined> {
    const known = this.#known.get(allocated);
    if (known?.present === present) return known.declared;
    try {
      const declared = await declarePod(node, pod);
      this.#known.set(allocated, { present, declared });
      return declared;
    } catch {
      return known?.declared;
    }
  }

  /** Returns the declared pod as last read with this entry. */
  of(allocated: PodEntry): DeclaredPod | undefined {
    return this.#known.get(allocated)?.declared;
  }
}
