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
 * Returns the steps from `state` to `target`: shrink volumes, raise the pod limit, update containers, lower the pod limit, grow
 * volumes.
 *
 * - KEP-1287 (order of the pod's and the containers' cgroups): the sum of the containers' limits never exceeds the pod limit.
 * - KEP-6030 (order of volumes and memory limits): a volume never exceeds a limit that it was below before.
 *
 * A value that the kernel has already needs no step, also when the kernel has rounded it to pages. Values that `state` does not
 * have need none either: a container that does not run, a volume that is not mounted, shares or a weight that were not read.
 */
export function plan(state: PodState, target: PodTarget): Step[] {
  const { shrink, grow } = volumeSteps(state, target);
  const { before, after } = podSteps(state, target);
  const calls: Step[] = target.call === 'none' ? [] : [{ kind: 'runtime' }];
  const containers = containerSteps(state, target.containers ?? []);
  // KEP-1287: a container's update comes between the raise and the decrease of the pod limit. The pod's own call only reports the
  // written values to the runtime, so it comes last: after an earlier error nothing has been reported.
  const cgroups =
    target.call === 'container'
      ? [...before, ...containers, ...calls, ...after]
      : [...before, ...containers, ...after, ...calls];
  return [...shrink, ...cgroups, ...grow];
}

/** KEP-6030: volumes shrink before all cgroup steps, and grow after them. */
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

/**
 * KEP-1287: the pod limit is raised before its containers change, and lowered after them. Memory and CPU are ordered separately:
 * one may go up while the other goes down.
 */
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

/** KEP-1287: containers' decreases come before their increases, so the sum of the limits never exceeds both its old and its new value. */
function containerSteps(state: PodState, targets: readonly ContainerLimits[]): Step[] {
  const updates = targets.map((target) => containerUpdates(state.containers, target));
  return [...updates.flatMap(({ lower }) => lower ?? []), ...updates.flatMap(({ raise }) => raise ?? [])];
}

/** The updates of one container: one, or two when its memory and CPU go opposite ways (KEP-1287). */
interface Updates {
  readonly lower?: ContainerStep;
  readonly raise?: ContainerStep;
}

function containerUpdates(containers: readonly LiveContainer[], target: ContainerLimits): Updates {
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
  // No rule applies to shares, or to another period for the same rate: they go with any update.
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

/** Returns one update from one set of a container's limits to another, in any direction. Undefined when nothing changes. */
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
