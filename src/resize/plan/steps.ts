import { isSameSize } from '../../tmpfs/index.ts';
import {
  type Change,
  type ContainerStep,
  type PodTarget,
  type Step,
  compareCpu,
  compareLimits,
  sameCpu,
  sameMemory,
} from '../model/index.ts';
import type { ContainerLimits, LiveContainer, PodState } from '../../sandbox/index.ts';

/**
 * The steps from `state` to `target`: volumes that shrink, what the pod's cgroup gains, the containers' updates, what
 * the pod's cgroup loses, volumes that grow. So the sum of the containers' limits stays within the pod's at every instant, and a
 * volume is never larger than a limit that it was smaller than before.
 *
 * What the kernel has already gives no step, also when it has rounded it to pages. Nor does what `state` does not have: a
 * container that does not run, a volume that is not mounted, shares or a weight that nobody has read.
 */
export function plan(state: PodState, target: PodTarget): Step[] {
  const { shrink, grow } = volumeSteps(state, target);
  const { before, after } = podSteps(state, target);
  const calls: Step[] = target.call === 'none' ? [] : [{ kind: 'runtime' }];
  const containers = containerSteps(state, target.containers ?? []);
  // A container's new limit belongs between what the pod gains and what it loses. The pod's own call only tells the
  // runtime what was written, so it comes last: an error before it has told nobody.
  const cgroups =
    target.call === 'container'
      ? [...before, ...containers, ...calls, ...after]
      : [...before, ...containers, ...after, ...calls];
  return [...shrink, ...cgroups, ...grow];
}

function volumeSteps(state: PodState, { volumes }: PodTarget): { readonly shrink: Step[]; readonly grow: Step[] } {
  const shrink: Step[] = [];
  const grow: Step[] = [];
  for (const { name, size } of state.volumes) {
    const to = volumes.get(name);
    if (to === undefined || isSameSize(to, size)) continue;
    (to < size ? shrink : grow).push({ kind: 'volume', volume: name, from: size, to });
  }
  return { shrink, grow };
}

/** What the pod's own cgroup gains before its containers change, and what it loses after. */
function podSteps(state: PodState, target: PodTarget): { readonly before: Step[]; readonly after: Step[] } {
  const before: Step[] = [];
  const after: Step[] = [];
  const { memory, cpu, weight } = target;
  if (memory !== undefined && !sameMemory(state.memory, memory)) {
    const raise = compareLimits(memory, state.memory) > 0;
    (raise ? before : after).push({ kind: 'pod-memory', from: state.memory, to: memory });
  }
  if (cpu !== undefined && !sameCpu(cpu, state.cpu)) {
    const raise = compareCpu(cpu, state.cpu) > 0;
    (raise ? before : after).push({ kind: 'pod-cpu', from: state.cpu, to: cpu });
  }
  if (weight !== undefined && state.weight !== undefined && weight !== state.weight)
    before.push({ kind: 'pod-weight', from: state.weight, to: weight });
  for (const { key, from, to } of target.unified ?? []) {
    if (to !== from) before.push({ kind: 'pod-unified', key, from, to });
  }
  return { before, after };
}

/** What each container loses, then what each gains: so their sum is never above both what it was and what it will be. */
function containerSteps(state: PodState, targets: readonly ContainerLimits[]): Step[] {
  const updates = targets.map((target) => updatesOf(state.containers, target));
  return [...updates.flatMap(({ lower }) => lower ?? []), ...updates.flatMap(({ raise }) => raise ?? [])];
}

/** The updates of one container: one, or two when its memory and its CPU go opposite ways. */
interface Updates {
  readonly lower?: ContainerStep;
  readonly raise?: ContainerStep;
}

function updatesOf(containers: readonly LiveContainer[], target: ContainerLimits): Updates {
  const now = containers.find(({ id }) => id === target.id);
  if (now === undefined) return {};
  const memory = changeOf(now.memory, target.memory, sameMemory);
  const cpu = changeOf(now.cpu, target.cpu, sameCpu);
  const shares = now.shares === undefined ? undefined : changeOf(now.shares, target.shares, (a, b) => a === b);
  const byMemory = memory === undefined ? 0 : compareLimits(memory.to, memory.from);
  const byCpu = cpu === undefined ? 0 : compareCpu(cpu.to, cpu.from);
  const step = (parts: Omit<ContainerStep, 'kind' | 'id'>): ContainerStep => ({
    kind: 'container',
    id: target.id,
    ...parts,
  });
  // Shares, and another period for the same rate, take part in no rule: they go with an update that is made anyway.
  const all = { ...(memory && { memory }), ...(cpu && { cpu }), ...(shares && { shares }) };
  if (byMemory < 0 && byCpu > 0) {
    return {
      lower: step({ ...(memory && { memory }) }),
      raise: step({ ...(cpu && { cpu }), ...(shares && { shares }) }),
    };
  }
  if (byCpu < 0 && byMemory > 0) {
    return {
      lower: step({ ...(cpu && { cpu }) }),
      raise: step({ ...(memory && { memory }), ...(shares && { shares }) }),
    };
  }
  if (Object.keys(all).length === 0) return {};
  return byMemory < 0 || byCpu < 0 ? { lower: step(all) } : { raise: step(all) };
}

/** One update that takes a container from one set of limits to another, whatever goes which way. Undefined: nothing to do. */
export function containerChanges(from: LiveContainer, to: LiveContainer): ContainerStep | undefined {
  const memory = changeOf(from.memory, to.memory, sameMemory);
  const cpu = changeOf(from.cpu, to.cpu, sameCpu);
  const shares = from.shares === undefined ? undefined : changeOf(from.shares, to.shares, (a, b) => a === b);
  if (memory === undefined && cpu === undefined && shares === undefined) return undefined;
  return { kind: 'container', id: to.id, ...(memory && { memory }), ...(cpu && { cpu }), ...(shares && { shares }) };
}

function changeOf<Value>(
  from: Value,
  to: Value | undefined,
  same: (from: Value, to: Value) => boolean,
): Change<Value> | undefined {
  return to === undefined || same(from, to) ? undefined : { from, to };
}
