import fc from 'fast-check';
import type { ContainerState, ContainerStep, PodState, PodTarget, Step } from '../../src/sandbox/state.ts';
import { type Bytes, type CpuMax, type Limit, bytes, cpuWeight, microseconds } from '../../src/units/index.ts';

/** Random pods for the property tests, and a pod on paper that steps are carried out on. */

const MI = 1024 * 1024;
const PERIOD = microseconds(100_000);
const NO_OVERHEAD: PodState['overhead'] = { memory: bytes(0), cpu: { quota: microseconds(0), period: PERIOD } };

export const memoryLimit: fc.Arbitrary<Limit<Bytes>> = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 1, max: 64 }).map((n) => bytes(n * 16 * MI)) },
  { weight: 1, arbitrary: fc.constant('max' as const) },
);

export const cpuLimit: fc.Arbitrary<CpuMax> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.integer({ min: 1, max: 40 }).map((n) => ({ quota: microseconds(n * 5000), period: PERIOD })),
  },
  { weight: 1, arbitrary: fc.constant({ quota: 'max' as const, period: PERIOD }) },
);

const containers: fc.Arbitrary<ContainerState[]> = fc
  .array(fc.record({ memory: memoryLimit, cpu: cpuLimit }), { minLength: 1, maxLength: 10 })
  .map((list) => list.map((limits, index) => ({ id: `c${index}`, ...limits })));

type PodLimitKind = 'tight' | 'loose' | 'max';

/** A pod whose limit is the sum of its containers' limits, more than that, or none. */
export const podState: fc.Arbitrary<PodState> = fc
  .record({
    containers,
    memoryKind: fc.constantFrom<PodLimitKind>('tight', 'loose', 'max'),
    cpuKind: fc.constantFrom<PodLimitKind>('tight', 'loose', 'max'),
    overhead: fc.boolean(),
  })
  .map(({ containers: list, memoryKind, cpuKind, overhead }) => {
    const extra = overhead
      ? { memory: bytes(8 * MI), cpu: { quota: microseconds(2000), period: PERIOD } }
      : NO_OVERHEAD;
    const state = { containers: list, overhead: extra, memory: 'max', cpu: { quota: 'max', period: PERIOD } } as const;
    const memory = podLimit(memoryKind, memorySum({ ...state, weight: undefined, volumes: [] }), 64 * MI, bytes);
    const quota = podLimit(cpuKind, cpuSum({ ...state, weight: undefined, volumes: [] }), 50_000, microseconds);
    return { ...state, memory, cpu: { quota, period: PERIOD }, weight: cpuWeight(39), volumes: [] };
  });

function podLimit<Unit extends number>(kind: PodLimitKind, sum: number, more: number, unit: (n: number) => Unit) {
  if (kind === 'max' || sum === Infinity) return 'max' as const;
  return unit(kind === 'tight' ? sum : sum + more);
}

export const memorySum = (state: PodState): number =>
  state.containers.reduce<number>(
    (all, { memory }) => all + (memory === 'max' ? Infinity : memory),
    state.overhead.memory,
  );

export const cpuSum = (state: PodState): number =>
  state.containers.reduce<number>(
    (all, { cpu }) => all + (cpu.quota === 'max' ? Infinity : (cpu.quota * PERIOD) / cpu.period),
    state.overhead.cpu.quota === 'max' ? Infinity : state.overhead.cpu.quota,
  );

/** Carries one step out on paper; `update` is what the runtime's call does. */
export function apply(state: PodState, step: Step, update: (state: PodState) => PodState): PodState {
  switch (step.kind) {
    case 'runtime':
      return update(state);
    case 'container':
      return {
        ...state,
        containers: state.containers.map((entry) => (entry.id === step.id ? updated(entry, step) : entry)),
      };
    case 'pod-memory':
      return { ...state, memory: step.to };
    case 'pod-cpu':
      return { ...state, cpu: step.to };
    case 'pod-weight':
      return { ...state, weight: step.to };
    case 'pod-unified':
      return state;
    case 'volume':
      return {
        ...state,
        volumes: state.volumes.map((volume) => (volume.name === step.volume ? { ...volume, size: step.to } : volume)),
      };
  }
}

const updated = (entry: ContainerState, { memory, cpu, shares }: ContainerStep): ContainerState => ({
  ...entry,
  ...(memory && { memory: memory.to }),
  ...(cpu && { cpu: cpu.to }),
  ...(shares && { shares: shares.to }),
});

/** What must hold after every step, for pods in which it held at the start. */
export const sumsAreWithin = (state: PodState): boolean =>
  (state.memory === 'max' || memorySum(state) <= state.memory) &&
  (state.cpu.quota === 'max' || cpuSum(state) <= state.cpu.quota);

export const NO_VOLUMES: PodTarget['volumes'] = new Map();
