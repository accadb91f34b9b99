import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit, Microseconds } from '../../core/quantities/numbers.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';

/** An applied step. Times in milliseconds; `at` counts from the start of the transaction. */
export interface StepRecord {
  readonly step: Step;
  readonly at: number;
  readonly ms: number;
}

/** Describes a step in one line: `pod memory.max 268435456 -> 335544320`. */
export function describeStep(step: Step): string {
  switch (step.kind) {
    case 'volume':
      return `volume ${step.volume} ${step.from} -> ${step.to}`;
    case 'pod-memory':
      return `pod memory.max ${step.from} -> ${step.to}`;
    case 'pod-cpu':
      return `pod cpu.max ${step.from.quota} ${step.from.period} -> ${step.to.quota} ${step.to.period}`;
    case 'pod-weight':
      return `pod cpu.weight ${step.from} -> ${step.to}`;
    case 'pod-unified':
      return `pod ${step.key} ${step.from} -> ${step.to}`;
    case 'burst':
      return `${step.id === undefined ? 'pod' : `container ${step.id}`} cpu.max.burst ${step.from} -> ${step.to}`;
    case 'container':
      return `container ${step.id} ${changesOf(step).join(', ')}`;
    case 'runtime':
      return 'runtime';
  }
}

/** Returns the changes of a container's step, without unchanged values that are only written along. */
export function changesOf({ memory, cpu, shares, swap, settings = {} }: ContainerStep): string[] {
  const text = ({ quota, period }: CpuMax): string => `${quota} ${period}`;
  const change = (name: string, from: string | number, to: string | number): string[] =>
    from === to ? [] : [`${name} ${from} -> ${to}`];
  return [
    ...(memory === undefined ? [] : change('memory.max', memory.from, memory.to)),
    ...(swap === undefined ? [] : change('memory.swap.max', swap.from, swap.to)),
    ...(cpu === undefined ? [] : change('cpu.max', text(cpu.from), text(cpu.to))),
    ...(shares === undefined ? [] : change('cpu shares', shares.from, shares.to)),
    ...Object.entries(settings).flatMap(([file, { from, to }]) => change(file, from, to)),
  ];
}

export interface Change<Value> {
  readonly from: Value;
  readonly to: Value;
}

/**
 * One update of one container by the runtime. If it contains memory and CPU, both change in the same direction. A value
 * with equal ends is only written along: the runtime writes all its stored values with each update, and they may be
 * older than the kernel's.
 */
export interface ContainerStep {
  readonly kind: 'container';
  readonly id: string;
  readonly memory?: Change<Limit<Bytes>>;
  readonly cpu?: Change<CpuMax>;
  readonly shares?: Change<CpuShares>;
  readonly swap?: Change<Limit<Bytes>>;
  /** Other files of the container's cgroup by name, with their changes. */
  readonly settings?: Readonly<Record<string, Change<string>>>;
}

/** One write: a plan is an ordered list of steps. */
export type Step =
  | { readonly kind: 'volume'; readonly volume: string; readonly from: Bytes; readonly to: Bytes }
  | { readonly kind: 'pod-memory'; readonly from: Limit<Bytes>; readonly to: Limit<Bytes> }
  | { readonly kind: 'pod-cpu'; readonly from: CpuMax; readonly to: CpuMax }
  | { readonly kind: 'pod-weight'; readonly from: CpuWeight; readonly to: CpuWeight }
  | { readonly kind: 'pod-unified'; readonly key: string; readonly from: string; readonly to: string }
  /** cpu.max.burst of a container, or of the pod without an id. */
  | { readonly kind: 'burst'; readonly id?: string; readonly from: Microseconds; readonly to: Microseconds }
  | ContainerStep
  /** The caller's own call, forwarded unchanged. */
  | { readonly kind: 'runtime' };

/** A key of CRI's `unified`: a file of the pod's cgroup, with its present and its new content. */
export interface UnifiedChange {
  readonly key: string;
  readonly from: string;
  readonly to: string;
}

/** The values that a pod has at the end of a resize. Absent values stay as they are. */
export interface PodTarget {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly weight?: CpuWeight;
  /** Keys that resource fields do not cover. */
  readonly unified?: readonly UnifiedChange[];
  /** Containers that the shim updates by calls of its own. */
  readonly containers?: readonly ContainerLimits[];
  /** The caller's own call that is forwarded as one of the steps: a container's update, the pod's update, or none. */
  readonly call: 'container' | 'pod' | 'none';
  /** The values that the caller's own update of a container sets. */
  readonly asked?: ContainerLimits | undefined;
  readonly volumes: ReadonlyMap<string, Bytes>;
}

/** Returns the pod's state after a resize to `target`. */
export function stateAfter(
  state: PodState,
  { memory, cpu, weight, containers = [], volumes }: Omit<PodTarget, 'call' | 'asked' | 'unified'>,
): PodState {
  return {
    ...state,
    ...(memory !== undefined && { memory }),
    ...(cpu !== undefined && { cpu }),
    ...(weight !== undefined && { weight }),
    containers: state.containers.map((container) => ({
      ...container,
      ...containers.find(({ id }) => id === container.id),
    })),
    volumes: state.volumes.map((volume) => ({ ...volume, size: volumes.get(volume.name) ?? volume.size })),
  };
}
