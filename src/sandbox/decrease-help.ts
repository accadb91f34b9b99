import { type CgroupPath, containerIdOf } from '../cgroups/index.ts';
import type { Counters, Log } from '../observe/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import type { Bytes, Limit } from '../units/index.ts';
import type { Clock } from './clock.ts';
import type { ResizeContext } from './context.ts';
import { type Decrease, DecreaseHelp, type Decreases, isUnderWay } from './foresight/index.ts';
import { foreseenOf } from './foreseen.ts';
import { hasPodCgroup, podCgroup, readPod } from './live.ts';
import { compareLimits, sameMemory } from './plan.ts';
import { containerNamed, podNamed } from './room.ts';
import type { PodState } from './state.ts';

/** The help for memory limits that kubelet has admitted, on this node. Does nothing until it is told to look. */
export function decreaseHelpFor(
  context: () => ResizeContext,
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

function podsUnderWay({ registry, kubelet }: ResizeContext): string[] {
  const uids = new Set(registry.pods.map(({ metadata }) => metadata.uid));
  return [...uids].filter((uid) => {
    const allocated = kubelet.allocated(uid);
    return allocated !== undefined && isUnderWay(allocated, kubelet.actuated(uid));
  });
}

/** Throws CGROUP_UNAVAILABLE, as CgroupVanished when the pod has ended. */
async function decreasesOf(context: ResizeContext, pod: PodDescription): Promise<Decreases | undefined> {
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
    const { text } = containerNamed({ name: nameOf(context, id) }, pod);
    list.push({ text: `${text} of ${podNamed(pod).text}`, cgroup, from: memory, to });
  }
  const { memory: podTo } = foreseen.pod;
  if (isLower(podTo, state.memory))
    list.push({ text: podNamed(pod).text, cgroup: podCgroup(pod), from: state.memory, to: podTo });
  return { admitted, list };
}

const isLower = (to: Limit<Bytes> | undefined, from: Limit<Bytes>): to is Bytes =>
  to !== undefined && to !== 'max' && compareLimits(to, from) < 0 && !sameMemory(from, to);

/** Containers that were made past the shim: kubelet's records have names, the kernel has ids. */
async function learnNames({ registry }: ResizeContext, state: PodState): Promise<void> {
  for (const { id } of state.containers) if (!registry.knows(id)) await registry.describeContainer(id);
}

const nameOf = ({ registry }: ResizeContext, id: string): string =>
  registry.pods
    .flatMap(({ sandboxId }) => registry.containersOf(sandboxId))
    .find(({ containerId }) => containerId === id)?.name ?? id;

function cgroupsOf({ tree }: ResizeContext, pod: PodDescription): ReadonlyMap<string, CgroupPath> {
  const parent = podCgroup(pod);
  return new Map(
    tree.children(parent).flatMap((name): [string, CgroupPath][] => {
      const id = containerIdOf(name);
      return id === undefined ? [] : [[id, `${parent}/${name}`]];
    }),
  );
}
