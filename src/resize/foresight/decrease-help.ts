import { type CgroupPath, type CgroupTree, containerIdOf } from '../../cgroups/index.ts';
import type { Counters, Log } from '../../observe/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { foreseenOf } from './pending-kubelet-resize.ts';
import type { Decrease, Decreases } from './decrease.ts';
import { DecreaseHelp } from './decreases.ts';
import { type PodForeseen, isUnderWay } from './target.ts';
import type { Clock, KeyedLock } from '../../core/concurrency/index.ts';
import {
  type PodState,
  type Registry,
  containerSubject,
  hasPodCgroup,
  podCgroup,
  podSubject,
  readPod,
} from '../../sandbox/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';
import { compareLimits, sameMemory } from '../model/index.ts';

export interface DecreaseHelpParts {
  readonly registry: Registry;
  readonly tree: CgroupTree;
  /** One transaction at a time for a pod, by sandbox id. */
  readonly lock: KeyedLock;
  /** What kubelet has written of its pods: a hint at what it is about to ask for. */
  readonly kubelet: KubeletState;
  /** What that came to for pods in the middle of a resize, by sandbox id. */
  readonly foreseen: Map<string, PodForeseen>;
}

/** The help for memory limits that kubelet has admitted, on this node. Does nothing until it is told to look. */
export function decreaseHelpFor(
  context: () => DecreaseHelpParts,
  parts: { readonly clock: Clock; readonly log: Log; readonly counters: Counters },
): DecreaseHelp {
  const sandboxes = (uid: string): readonly PodDescription[] =>
    context().registry.pods.filter(({ metadata }) => metadata.uid === uid);
  return new DecreaseHelp({
    ...parts,
    tree: {
      readMemoryUse: (cgroup) => context().tree.readMemoryUse(cgroup),
      readMemoryCurrent: (cgroup) => context().tree.readMemoryCurrent(cgroup),
      reclaim: (cgroup, amount) => context().tree.reclaim(cgroup, amount),
    },
    pods: () => podsUnderWay(context()),
    decreases: async (uid) => {
      // Of several sandboxes of one pod the last one runs; their containers share the pod's cgroup.
      const pod = sandboxes(uid).at(-1);
      return pod === undefined || !hasPodCgroup(pod) ? undefined : decreasesOf(context(), pod);
    },
    isBusy: (uid) => sandboxes(uid).some(({ sandboxId }) => context().lock.isHeld(sandboxId)),
    idle: async (uid) => {
      const { lock } = context();
      for (const { sandboxId } of sandboxes(uid))
        if (lock.isHeld(sandboxId)) await lock.run(sandboxId, () => Promise.resolve());
    },
  });
}

function podsUnderWay({
  registry,
  kubelet,
}: {
  readonly registry: Registry;
  readonly kubelet: KubeletState;
}): string[] {
  const uids = new Set(registry.pods.map(({ metadata }) => metadata.uid));
  return [...uids].filter((uid) => {
    const allocated = kubelet.allocated(uid);
    return allocated !== undefined && isUnderWay(allocated, kubelet.actuated(uid));
  });
}

/** Throws CGROUP_UNAVAILABLE, as CgroupVanished when the pod has ended. */
async function decreasesOf(
  context: Pick<DecreaseHelpParts, 'registry' | 'tree' | 'kubelet' | 'foreseen'>,
  pod: PodDescription,
): Promise<Decreases | undefined> {
  const allocated = context.kubelet.allocated(pod.metadata.uid);
  if (allocated === undefined) return undefined;
  const { containers, pod: level } = allocated;
  const admitted = JSON.stringify([[...containers].map(([name, { memory }]) => [name, memory]), level?.memory]);
  const state = await readPod(context.tree, pod, []);
  await learnNames(context, state);
  const foreseen = foreseenOf(context, pod, state);
  if (foreseen === undefined) return { admitted, list: [] };
  const places = cgroupsOf(context, pod);
  const list: Decrease[] = [];
  for (const { id, memory } of state.containers) {
    const cgroup = places.get(id);
    const to = foreseen.containers.get(id)?.memory;
    if (cgroup === undefined || !isLower(to, memory)) continue;
    const { text } = containerSubject({ name: nameOf(context, id) }, pod);
    list.push({ text: `${text} of ${podSubject(pod).text}`, cgroup, from: memory, to });
  }
  const { memory: podTo } = foreseen.pod;
  if (isLower(podTo, state.memory))
    list.push({ text: podSubject(pod).text, cgroup: podCgroup(pod), from: state.memory, to: podTo });
  return { admitted, list };
}

const isLower = (to: Limit<Bytes> | undefined, from: Limit<Bytes>): to is Bytes =>
  to !== undefined && to !== 'max' && compareLimits(to, from) < 0 && !sameMemory(from, to);

/** Containers that were made past the shim: kubelet's records have names, the kernel has ids. */
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
