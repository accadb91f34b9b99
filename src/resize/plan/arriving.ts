import type { Bytes, CpuMax, Limit } from '../../core/quantities/index.ts';
import {
  type ContainerStep,
  type PodTarget,
  type Step,
  compareCpu,
  compareLimits,
  sameCpu,
  sameMemory,
} from '../model/index.ts';
import type { ContainerLimits, PodState } from '../../sandbox/index.ts';
import { podLimitsFor, stateWith } from './pod-limits.ts';

/**
 * Returns the state with the limits that containers have if updates without an answer still arrive, as far as those
 * raise a limit. KEP-1287: the sum of the containers' limits never exceeds the pod limit, so the pod limit needs room
 * for them.
 */
export function ifTheyArrive(state: PodState, updates: readonly ContainerStep[]): PodState {
  return updates.reduce((before, { id, memory, cpu }) => {
    const now = before.containers.find((container) => container.id === id);
    if (now === undefined) return before;
    const raised = {
      ...(memory !== undefined && compareLimits(memory.to, now.memory) > 0 && { memory: memory.to }),
      ...(cpu !== undefined && compareCpu(cpu.to, now.cpu) > 0 && { cpu: cpu.to }),
    };
    return stateWith(before, [{ id, ...raised }]);
  }, state);
}

/** Updates that a transaction has left without an answer. */
export interface LeftUpdates {
  /** All steps of the transaction. */
  readonly steps: readonly Step[];
  /** The updates at their highest limits. */
  readonly unanswered: readonly ContainerStep[];
  /** The limits of the containers once the updates are rolled back. */
  readonly settled: readonly ContainerLimits[];
}

/**
 * Returns the steps of the pod that a later transaction has to leave, so that rolling back {@link LeftUpdates} ends with the pod limits
 * that the later transaction alone would have set. None for a pod limit that it has not derived from the containers.
 *
 * @param state the pod before the later transaction
 */
export function podStepsLeft(
  state: PodState,
  target: Pick<PodTarget, 'memory' | 'cpu'> & { readonly containers: readonly ContainerLimits[] },
  { steps, unanswered, settled }: LeftUpdates,
): Step[] {
  const base = { ...stateWith(state, settled), ...podLimitsBefore(state, steps) };
  const derived = podLimitsFor(ifTheyArrive(state, unanswered), target.containers);
  const then = { memory: base.memory, cpu: base.cpu, ...podLimitsFor(base, target.containers) };
  const { memory = state.memory, cpu = state.cpu } = target;
  const ownsMemory = target.memory === undefined || isSame(sameMemory, target.memory, derived.memory);
  const ownsCpu = target.cpu === undefined || isSame(sameCpu, target.cpu, derived.cpu);
  return [
    ...(ownsMemory && !sameMemory(memory, then.memory)
      ? [{ kind: 'pod-memory', from: then.memory, to: memory } as const]
      : []),
    ...(ownsCpu && !sameCpu(cpu, then.cpu) ? [{ kind: 'pod-cpu', from: then.cpu, to: cpu } as const] : []),
  ];
}

const isSame = <Value>(same: (a: Value, b: Value) => boolean, a: Value, b: Value | undefined): boolean =>
  b !== undefined && same(a, b);

/** Returns the pod limits from before the first of these steps, unless another program has changed them since. */
function podLimitsBefore(
  { memory, cpu }: PodState,
  steps: readonly Step[],
): { readonly memory: Limit<Bytes>; readonly cpu: CpuMax } {
  const memorySteps = steps.filter((step) => step.kind === 'pod-memory');
  const cpuSteps = steps.filter((step) => step.kind === 'pod-cpu');
  const [lastMemory, lastCpu] = [memorySteps.at(-1), cpuSteps.at(-1)];
  return {
    memory: lastMemory && sameMemory(memory, lastMemory.to) ? (memorySteps[0]?.from ?? memory) : memory,
    cpu: lastCpu && sameCpu(cpu, lastCpu.to) ? (cpuSteps[0]?.from ?? cpu) : cpu,
  };
}
