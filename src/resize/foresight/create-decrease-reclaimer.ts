import { type CgroupPath, type CgroupTree, containerIdOf, restoreMarkedHigh } from '../../cgroups/index.ts';
import type { Counters, Log } from '../../observe/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { hasPendingMemory, type PendingPodLimits, pendingResizeOf, pendingSwapOf } from './pending/index.ts';
import type { Decrease, HoldJournal, PendingDecreases } from './decrease.ts';
import { DecreaseReclaimer } from './decrease-reclaimer.ts';
import { KnownDeclarations } from './known-declarations.ts';
import type { Clock, KeyedLock } from '../../core/concurrency/index.ts';
import {
  type DeclarePodParts,
  type PodState,
  type Registry,
  containerSubject,
  hasPodCgroup,
  podCgroup,
  podSubject,
  readPod,
} from '../../sandbox/index.ts';
import type { KubeletState, PodEntry } from '../../kubelet/index.ts';
import { compareLimits, sameMemory } from '../model/index.ts';
import type { PodJournal } from '../journal/index.ts';

export interface CreateDecreaseReclaimerParts extends DeclarePodParts {
  readonly registry: Registry;
  readonly tree: CgroupTree;
  readonly journal: PodJournal;
  /** Serializes the transactions of a pod, by sandbox id. */
  readonly lock: KeyedLock;
  /** kubelet's checkpoints: a hint at the calls it is about to make. */
  readonly kubelet: KubeletState;
  /** The pending limits of pods in the middle of a kubelet resize, by sandbox id. */
  readonly pendingPodLimits: Map<string, PendingPodLimits>;
}

/** Creates the node's decrease reclaimer. It does nothing until its `check` is called. */
export function createDecreaseReclaimer(
  context: () => CreateDecreaseReclaimerParts,
  parts: { readonly clock: Clock; readonly log: Log; readonly counters: Counters },
): DecreaseReclaimer {
  const sandboxes = (uid: string): readonly PodDescription[] =>
    context().registry.pods.filter(({ metadata }) => metadata.uid === uid);
  // The backend lists sandboxes in any order. Of several of one pod, the newest one runs; their containers share the pod's cgroup.
  const newest = (uid: string): PodDescription | undefined => {
    const attempt = ({ metadata }: PodDescription): number => metadata.attempt ?? 0;
    return [...sandboxes(uid)].sort((one, other) => attempt(one) - attempt(other)).at(-1);
  };
  const declarations = new KnownDeclarations();
  return new DecreaseReclaimer({
    ...parts,
    get tree() {
      return context().tree;
    },
    holds: holdJournal(context, newest),
    pods: () => podsWithPendingMemory(context(), declarations),
    entries: (uid) => [context().kubelet.allocated(uid), context().kubelet.actuated(uid)],
    decreases: async (uid) => {
      const pod = newest(uid);
      return pod === undefined || !hasPodCgroup(pod) ? undefined : decreasesOf(context(), pod, declarations);
    },
    isBusy: (uid) => sandboxes(uid).some(({ sandboxId }) => context().lock.isHeld(sandboxId)),
    idle: async (uid) => {
      const { lock } = context();
      for (const { sandboxId } of sandboxes(uid))
        if (lock.isHeld(sandboxId)) await lock.run(sandboxId, () => Promise.resolve());
    },
  });
}

function holdJournal(
  context: () => Pick<CreateDecreaseReclaimerParts, 'tree' | 'journal'>,
  podOf: (uid: string) => PodDescription | undefined,
): HoldJournal {
  return {
    async begin(uid, cgroups) {
      const { tree, journal } = context();
      await journal.restored();
      const pod = podOf(uid);
      if (pod === undefined || journal.transactionOf(pod) !== undefined) return false;
      for (const high of journal.holdsOf(pod)) await restoreMarkedHigh(tree, high);
      const highs = cgroups.map((cgroup) => ({ cgroup, memoryHigh: tree.readHigh(cgroup) }));
      await journal.setHolds(pod, highs);
      return true;
    },
    async lowers(uid, high) {
      const { journal } = context();
      const pod = podOf(uid);
      if (pod === undefined) return;
      const known = journal.holdsOf(pod);
      if (known.some(({ cgroup, memoryHigh }) => cgroup === high.cgroup && memoryHigh === high.memoryHigh)) return;
      await journal.setHolds(pod, [...known.filter(({ cgroup }) => cgroup !== high.cgroup), high]);
    },
    async end(uid) {
      const pod = podOf(uid);
      // The record of a removed pod is removed with it.
      if (pod !== undefined) await context().journal.setHolds(pod, []);
    },
  };
}

function podsWithPendingMemory(
  { registry, kubelet }: { readonly registry: Registry; readonly kubelet: KubeletState },
  declarations: KnownDeclarations,
): string[] {
  const uids = new Set(registry.pods.map(({ metadata }) => metadata.uid));
  return [...uids].filter((uid) => {
    const allocated = kubelet.allocated(uid);
    return allocated !== undefined && hasPendingMemory(allocated, kubelet.actuated(uid), declarations.of(allocated));
  });
}

/** Rejects with CGROUP_UNAVAILABLE; with CgroupVanished when the pod has ended. */
async function decreasesOf(
  context: DeclarePodParts & Pick<CreateDecreaseReclaimerParts, 'registry' | 'tree' | 'kubelet' | 'pendingPodLimits'>,
  pod: PodDescription,
  declarations: KnownDeclarations,
): Promise<PendingDecreases | undefined> {
  const allocated = context.kubelet.allocated(pod.metadata.uid);
  if (allocated === undefined) return undefined;
  const admitted = admittedBy(allocated);
  const read = await readPod(context.tree, pod, []);
  const state = await declarations.withDeclared(context, pod, allocated, read);
  await learnNames(context, state);
  const pending = pendingResizeOf(context, pod, state);
  if (pending === undefined) return { admitted, list: [], swapAfter: new Map() };
  const places = cgroupsOf(context, pod);
  const list: Decrease[] = [];
  for (const { id, memory } of state.containers) {
    const cgroup = places.get(id);
    const to = pending.containers.get(id)?.memory;
    if (cgroup === undefined || !isLower(to, memory)) continue;
    const { text } = containerSubject({ name: nameOf(context, id) }, pod);
    list.push({ text: `${text} of ${podSubject(pod).text}`, cgroup, from: memory, to });
  }
  const { memory: podTo } = pending.pod;
  if (isLower(podTo, state.memory))
    list.push({ text: podSubject(pod).text, cgroup: podCgroup(pod), from: state.memory, to: podTo, isPod: true });
  const named = new Map([...places].map(([id, cgroup]) => [nameOf(context, id), cgroup]));
  const actuated = context.kubelet.actuated(pod.metadata.uid);
  return { admitted, list, swapAfter: pendingSwapOf(context.tree, named, { allocated, actuated }) };
}

/** Identifies limits and requests of memory. The limits on swap are derived from both. */
function admittedBy({ containers, pod, requests }: PodEntry): string {
  const memoryOf = (amounts: PodEntry['containers'] = new Map()): unknown =>
    [...amounts].map(([name, { memory }]) => [name, memory]);
  return JSON.stringify([memoryOf(containers), pod?.memory, memoryOf(requests?.containers)]);
}

const isLower = (to: Limit<Bytes> | undefined, from: Limit<Bytes>): to is Bytes =>
  to !== undefined && to !== 'max' && compareLimits(to, from) < 0 && !sameMemory(from, to);

/** Looks up containers that were created while the shim was away: kubelet's checkpoints have names, cgroups have ids. */
async function learnNames({ registry }: { readonly registry: Registry }, state: PodState): Promise<void> {
  for (const { id } of state.containers) if (!registry.knows(id)) await registry.describeContainer(id);
}

const nameOf = ({ registry }: { readonly registry: Registry }, id: string): string =>
  registry.pods
    .flatMap(({ sandboxId }) => registry.containersOf(sandboxId))
    .find(({ containerId }) => containerId === id)?.name ?? id;

function cgroupsOf({ tree }: { readonly tree: CgroupTree }, pod: PodDescription): ReadonlyMap<string, CgroupPath> {
  const parent = podCgroup(pod);
  return new Map(
    tree.children(parent).flatMap((name): [string, CgroupPath][] => {
      const id = containerIdOf(name);
      return id === undefined ? [] : [[id, `${parent}/${name}`]];
    }),
  );
}
