import type { EntryLimits, PodEntry } from '../../../kubelet/index.ts';
import type { DeclaredContainer, DeclaredPod, LiveContainer, PodState } from '../../../sandbox/index.ts';
import { type CountedResource, declaredSum, readingsOf } from '../../plan/index.ts';

/** What is needed to interpret an entry: the pod as it is declared, and the names of containers by id. */
export interface EntryContext {
  readonly state: PodState;
  readonly names: ReadonlyMap<string, string>;
}

/**
 * Returns the limit of a whole pod that its entry leads to, as kubelet computes it, without overhead: once for each way to count the
 * containers whose kind no source tells, always in the same order. Infinity: no limit. Empty if the entry is not completely understood.
 */
export const podAmounts = (
  entry: PodEntry,
  context: EntryContext,
  of: (limits: EntryLimits) => number | undefined,
): readonly number[] =>
  amountsOf(entry, context, [], { live: () => 0, declared: (limits) => of(limits) ?? Infinity, overhead: 0 });

/** Returns the memory limit of a whole pod as {@link podAmounts}, with the kernel's limits of the containers that run. */
export const presentAmounts = (entry: PodEntry, context: EntryContext): readonly number[] =>
  amountsOf(entry, context, context.state.containers, {
    live: ({ memory }) => (memory === 'max' ? Infinity : memory),
    declared: ({ memory = Infinity }) => memory,
    overhead: 0,
  });

function amountsOf(
  entry: PodEntry,
  context: EntryContext,
  containers: readonly LiveContainer[],
  resource: CountedResource,
): readonly number[] {
  if (!entry.isComplete || entry.containers.size === 0) return [];
  const pod = { containers, declared: declaredIn(entry, context) };
  return readingsOf(pod, resource).map((reading) => declaredSum(pod, resource, reading).sum);
}

/** Returns the declared pod with the limits of an entry. A container that nothing declares is an app container. */
function declaredIn(entry: PodEntry, { state, names }: EntryContext): DeclaredPod {
  const { source = 'kubelet-state', containers = [] } = state.declared ?? {};
  const others = [...entry.containers.keys()].filter((listed) => !containers.some(({ name }) => name === listed));
  const added = others.map((name): DeclaredContainer => {
    const id = state.containers.find((running) => names.get(running.id) === name)?.id;
    return id === undefined ? { name, kind: 'app', state: 'declared' } : { name, kind: 'app', state: 'running', id };
  });
  return {
    source,
    containers: [...containers, ...added].map((one) => {
      const limits = entry.containers.get(one.name);
      return limits === undefined ? one : { ...one, limits };
    }),
    ...(entry.pod && { limits: entry.pod }),
    volumes: new Map(),
  };
}
