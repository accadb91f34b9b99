import fc from 'fast-check';
import type { Bytes, CpuMax, Limit } from '../../../src/core/quantities/numbers.ts';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { ContainerStep, PodTarget, Step } from '../../../src/sandbox/plan/step.ts';
import { describeStep } from '../../../src/sandbox/plan/step.ts';
import type { Amounts, DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { ContainerLimits, LiveContainer, PodState, VolumeState } from '../../../src/sandbox/pods/pod-state.ts';
import type { Counted } from './declared-pods.ts';
import { declaration, declaredPod, kubeletLimit } from './declared-pods.ts';
import { setUp, setup } from './kubelet-pods.ts';

/** Random pods for the property tests, and a model of a pod that applies steps as the kernel would. */

export const PAGE = 4096;
export const PERIOD = microseconds(100_000);
export const NO_OVERHEAD: PodState['overhead'] = {
  memory: bytes(0),
  cpu: { quota: microseconds(0), period: PERIOD },
};
export const NO_VOLUMES: PodTarget['volumes'] = new Map();

/** Requested limits: mostly whole pages, sometimes decimal megabytes that the kernel rounds down. */
export const memoryLimit: fc.Arbitrary<Limit<Bytes>> = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 1, max: 64 }).map((n) => bytes(n * 16 * MiB)) },
  { weight: 2, arbitrary: fc.integer({ min: 1, max: 500 }).map((n) => bytes(n * 1_000_001)) },
  { weight: 1, arbitrary: fc.constant('max' as const) },
);

/** The minimum quota, rates that are equal at different periods, thirds, and no limit. */
export const cpuLimit: fc.Arbitrary<CpuMax> = fc.oneof(
  { weight: 8, arbitrary: cpuOf(PERIOD) },
  { weight: 1, arbitrary: cpuOf(microseconds(50_000)) },
  { weight: 1, arbitrary: cpuOf(microseconds(30_000)) },
);

function cpuOf(period: CpuMax['period']): fc.Arbitrary<CpuMax> {
  return fc.integer({ min: 0, max: 42 }).map((n): CpuMax => {
    if (n === 42) return { quota: 'max', period };
    return { quota: microseconds(Math.max(n * 2500, 1000)), period };
  });
}

const shares = fc.integer({ min: 1, max: 8 }).map((n) => cpuShares(n * 256));

const container = fc.record({
  memory: memoryLimit,
  cpu: cpuLimit,
  shares: fc.option(shares, { nil: undefined, freq: 2 }),
});

const volumeSize = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 1, max: 40 }).map((n) => bytes(n * 8 * MiB)) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 300 }).map((n) => bytes(n * 1_000_001)) },
);

/** The relation of a pod limit to the needs of its containers and its overhead. */
export const podLimitKinds = ['tight', 'loose', 'max', 'under'] as const;
export type PodLimitKind = (typeof podLimitKinds)[number];

const overhead: fc.Arbitrary<PodState['overhead']> = fc.constantFrom(
  NO_OVERHEAD,
  { memory: bytes(8 * MiB), cpu: { quota: microseconds(2000), period: PERIOD } },
  { memory: bytes(13_000_001), cpu: { quota: microseconds(1000), period: microseconds(30_000) } },
);

/**
 * A pod in the kernel after another client (kubelet) has set it up: limits are rounded to pages, and the pod limit is
 * the sum of the requested limits, more, less, or none.
 */
export const podState: fc.Arbitrary<PodState> = fc
  .record({
    asked: fc.array(container, { minLength: 1, maxLength: 10 }),
    memoryKind: fc.constantFrom(...podLimitKinds),
    cpuKind: fc.constantFrom(...podLimitKinds),
    overhead,
    sizes: fc.array(volumeSize, { maxLength: 3 }),
    declares: fc.option(declaration, { nil: undefined, freq: 2 }),
    kubelet: setup,
    bursts: fc.array(fc.option(fc.integer({ min: 1, max: 100_000 }), { nil: undefined, freq: 2 }), { maxLength: 11 }),
  })
  .map(({ asked, memoryKind, cpuKind, overhead: extra, sizes, declares, kubelet, bursts }) => {
    const containers = asked.map(
      ({ shares: known, ...limits }, index): LiveContainer => ({
        id: `c${index}`,
        ...limits,
        ...(known === undefined ? {} : { shares: known }),
      }),
    );
    const volumes = sizes.map((size, index): VolumeState => ({ name: `v${index}`, size: upToPages(size) }));
    const pod: PodState = {
      memory: 'max',
      cpu: { quota: 'max', period: PERIOD },
      weight: cpuWeight(39),
      overhead: extra,
      containers,
      volumes,
      ...(declares && { declared: declaredPod(containers, declares) }),
    };
    // kubelet applies the least quota of the kernel to the sum.
    const quota = podLimit(cpuKind, Math.max(Math.ceil(cpuSum(pod)), 1000), 50_000, 1000);
    const set: PodState = {
      ...pod,
      memory: inPages(sizeOrMax(podLimit(memoryKind, memorySum(pod), 64 * MiB, PAGE))),
      cpu: { quota: quota === Infinity ? ('max' as const) : microseconds(quota), period: PERIOD },
      containers: setUp(
        containers.map((entry) => ({ ...entry, memory: inPages(entry.memory) })),
        kubelet,
      ),
    };
    const [ofPod, ...ofContainers] = bursts;
    return {
      ...withBurst(set, ofPod),
      containers: set.containers.map((one, at) => withBurst(one, ofContainers[at])),
    };
  });

/** Adds a burst that the kernel accepts. */
function withBurst<Group extends { readonly cpu: CpuMax }>(group: Group, burst: number | undefined): Group {
  if (burst === undefined) return group;
  const most = group.cpu.quota === 'max' ? burst : group.cpu.quota;
  return { ...group, burst: microseconds(Math.min(burst, most)) };
}

/** `more` above the sum if loose, and three quarters of it if under, which is finite for any sum. */
export function podLimit(kind: PodLimitKind, sum: number, more: number, least: number): number {
  switch (kind) {
    case 'tight':
      return sum;
    case 'loose':
      return sum + more;
    case 'max':
      return Infinity;
    case 'under':
      return sum === Infinity ? more : Math.max(Math.floor((sum * 3) / 4), least);
  }
}

/** Requested changes of some containers, in the order of the pod's containers. */
const anyChanges: fc.Arbitrary<(state: PodState) => ContainerLimits[]> = fc
  .array(
    fc.record({
      memory: fc.option(memoryLimit, { nil: undefined, freq: 2 }),
      cpu: fc.option(cpuLimit, { nil: undefined, freq: 2 }),
      shares: fc.option(shares, { nil: undefined, freq: 2 }),
    }),
    { minLength: 1, maxLength: 10 },
  )
  .map(
    (list) => (state: PodState) =>
      list.slice(0, state.containers.length).map(
        ({ memory, cpu, shares: wanted }, index): ContainerLimits => ({
          id: `c${index}`,
          ...(memory === undefined ? {} : { memory }),
          ...(cpu === undefined ? {} : { cpu }),
          ...(wanted === undefined ? {} : { shares: wanted }),
        }),
      ),
  );

/** The containers exchange their limits, so that their sum does not change. */
const trades: fc.Arbitrary<(state: PodState) => ContainerLimits[]> = fc
  .record({ memory: fc.nat(9), cpu: fc.nat(9) })
  .map((by) => ({ containers }: PodState) => {
    const other = (index: number) => containers[index % containers.length]!;
    return containers.map(({ id }, index) => ({
      id,
      memory: other(index + by.memory).memory,
      cpu: other(index + by.cpu).cpu,
    }));
  });

export const containerChanges = fc.oneof({ weight: 5, arbitrary: anyChanges }, { weight: 1, arbitrary: trades });

/** Explicit sizes for some of a pod's volumes. */
export const volumeSizes: fc.Arbitrary<PodTarget['volumes']> = fc
  .array(fc.option(volumeSize, { nil: undefined, freq: 3 }), { maxLength: 3 })
  .map(
    (list) =>
      new Map(list.flatMap((size, index): [string, Bytes][] => (size === undefined ? [] : [[`v${index}`, size]]))),
  );

/** A written limit as the kernel stores it: in whole pages. */
export const inPages = (limit: Limit<Bytes>): Limit<Bytes> => (limit === 'max' ? 'max' : bytes(limit - (limit % PAGE)));

/** The size of a tmpfs as the kernel stores it: rounded up. */
export const upToPages = (size: Bytes): Bytes => bytes(Math.ceil(size / PAGE) * PAGE);

export const sizeOrMax = (size: number): Limit<Bytes> => (size === Infinity ? 'max' : bytes(size));

/** Bytes; Infinity when the pod has no limit by its containers. */
export const memorySum = (state: PodState): number =>
  limitOf(state, { live: ({ memory }) => numberOf(memory), declared: ({ memory }) => memory ?? Infinity }) +
  state.overhead.memory;

/** Microseconds in each {@link PERIOD}, fractions and all; Infinity when the pod has no limit by its containers. */
export const cpuSum = (state: PodState): number => {
  // Counted in thirds, which are whole numbers at each of the periods.
  const thirds = ({ quota, period }: CpuMax): number => numberOf(quota) * ((3 * PERIOD) / period);
  const sum = limitOf(state, {
    live: ({ cpu }) => thirds(cpu),
    declared: ({ milliCpu }) => (milliCpu === undefined ? Infinity : (milliCpu * 3 * PERIOD) / 1000),
  });
  return (sum + thirds(state.overhead.cpu)) / 3;
};

const numberOf = (limit: Limit<number>): number => (limit === 'max' ? Infinity : limit);

interface Measure {
  readonly live: (container: LiveContainer) => number;
  readonly declared: (amounts: Amounts) => number;
}

/** The pod's limit by its containers, as kubelet computes it. */
const limitOf = (state: PodState, measure: Measure): number =>
  kubeletLimit(countedIn(state, measure), levelOf(state, measure), Infinity);

const levelOf = ({ declared }: PodState, measure: Measure): number =>
  declared?.limits === undefined ? Infinity : measure.declared(declared.limits);

/** Returns the containers that count: running ones with their limits in the kernel, others with declared limits. */
export function countedIn({ containers, declared }: PodState, measure: Measure): readonly Counted[] {
  if (declared === undefined)
    return containers.map((container) => ({ kind: 'unknown', amount: measure.live(container) }));
  return declared.containers
    .filter(({ kind }) => kind !== 'ephemeral')
    .map(({ id, kind, limits = {} }) => {
      const live = containers.find((container) => container.id === id);
      return { kind, amount: live === undefined ? measure.declared(limits) : measure.live(live) };
    });
}

/** Applies a step to the model. `update`: the call's effect. Throws for a quota below burst, like the kernel. */
export function apply(state: PodState, step: Step, update: (state: PodState) => PodState = same): PodState {
  const after = applied(state, step, update);
  for (const { burst, cpu } of [after, ...after.containers])
    if (burst !== undefined && cpu.quota !== 'max' && burst > cpu.quota) throw new Error('cpu.max: EINVAL');
  return after;
}

function applied(state: PodState, step: Step, update: (state: PodState) => PodState): PodState {
  switch (step.kind) {
    case 'runtime':
      return update(state);
    case 'container':
      return {
        ...state,
        containers: state.containers.map((entry) => (entry.id === step.id ? updated(entry, step) : entry)),
      };
    case 'pod-memory':
      return { ...state, memory: inPages(step.to) };
    case 'pod-cpu':
      return { ...state, cpu: step.to };
    case 'pod-weight':
      return { ...state, weight: step.to };
    case 'pod-unified':
      return state;
    case 'burst':
      return step.id === undefined
        ? { ...state, burst: step.to }
        : {
            ...state,
            containers: state.containers.map((one) => (one.id === step.id ? { ...one, burst: step.to } : one)),
          };
    case 'volume':
      return {
        ...state,
        volumes: state.volumes.map((volume) =>
          volume.name === step.volume ? { ...volume, size: upToPages(step.to) } : volume,
        ),
      };
  }
}

const same = (state: PodState): PodState => state;

/** Returns a container's values after an update. */
export const updated = (
  entry: LiveContainer,
  { memory, cpu, shares: wanted, swap, settings = {} }: Omit<ContainerStep, 'kind' | 'id'>,
): LiveContainer => ({
  ...entry,
  ...(memory && { memory: inPages(memory.to) }),
  ...(cpu && { cpu: cpu.to }),
  ...(wanted && { shares: wanted.to }),
  ...(swap && { swap: inPages(swap.to) }),
  ...(entry.settings && {
    settings: {
      ...entry.settings,
      ...Object.fromEntries(Object.entries(settings).map(([file, { to }]) => [file, to])),
    },
  }),
});

/**
 * The rules of docs/resize.md, independent of the planner's own arithmetic: all values are whole numbers, and a missing
 * limit is a number larger than any sum of the others.
 */

export const resources = ['memory', 'cpu'] as const;
export type Resource = (typeof resources)[number];

const UNLIMITED = 2 ** 48;
/** A quota in each of the test periods is a whole number of these units. */
const CPU_UNITS = 300_000;

const amount = (limit: Limit<never> | number): number => (limit === 'max' ? UNLIMITED : limit);
const rate = ({ quota, period }: CpuMax): number => (quota === 'max' ? UNLIMITED : quota * (CPU_UNITS / period));

/** Returns the pod's limit by the declared and actual limits of its containers, without its overhead. */
export function containersSum(state: PodState, resource: Resource): number {
  const declared = ({ memory, milliCpu }: Amounts): number => {
    if (resource === 'cpu') return milliCpu === undefined ? UNLIMITED : milliCpu * (CPU_UNITS / 1000);
    // The kernel rounds the limit down to a whole page once the container runs.
    return memory === undefined ? UNLIMITED : memory - (memory % PAGE);
  };
  const live = ({ memory, cpu }: LiveContainer): number => (resource === 'memory' ? amount(memory) : rate(cpu));
  const level = state.declared?.limits === undefined ? UNLIMITED : declared(state.declared.limits);
  return kubeletLimit(countedIn(state, { live, declared }), level, UNLIMITED);
}

/** Whether the declared and actual limits of its containers leave the pod without a limit. */
export const isUnlimited = (state: PodState, resource: Resource): boolean =>
  containersSum(state, resource) === UNLIMITED;

/** Returns the number of limits in the sum of the containers, each of which may be rounded. */
export const countOf = ({ containers, declared }: PodState): number =>
  declared?.containers.filter(({ kind }) => kind !== 'ephemeral').length ?? containers.length;

/** Returns the sum and the overhead in whole pages, rounded like a limit in the kernel. */
export function needs(state: PodState, resource: Resource): number {
  const sum = containersSum(state, resource);
  if (resource === 'cpu') return sum + rate(state.overhead.cpu);
  const all = sum + state.overhead.memory;
  return all - (all % PAGE);
}

export const podLimitOf = (state: PodState, resource: Resource): number | 'max' => {
  if (resource === 'memory') return state.memory;
  return state.cpu.quota === 'max' ? 'max' : rate(state.cpu);
};

/** Returns the amount by which a sum exceeds the pod limit; negative if there is room or no limit. */
export function excess(state: PodState, resource: Resource, sum: typeof needs = needs): number {
  const limit = podLimitOf(state, resource);
  return limit === 'max' ? -Infinity : sum(state, resource) - limit;
}

/** The direction in which a step changes a resource of a container: -1, 0 or 1. */
export function direction(step: ContainerStep, resource: Resource): number {
  if (resource === 'memory')
    return step.memory === undefined ? 0 : Math.sign(amount(step.memory.to) - amount(step.memory.from));
  return step.cpu === undefined ? 0 : Math.sign(rate(step.cpu.to) - rate(step.cpu.from));
}

/**
 * The direction in which a step moves the sum under a pod limit that stays finite, where a container without a limit is
 * 0 to kubelet; otherwise as {@link direction}.
 */
export function directionInSum(before: PodState, after: PodState, step: ContainerStep, resource: Resource): number {
  const isFinite = [before, after].every((state) => podLimitOf(state, resource) !== 'max');
  const ends =
    resource === 'memory' ? [step.memory?.from, step.memory?.to] : [step.cpu?.from.quota, step.cpu?.to.quota];
  const [hadNone, hasNone] = ends.map((end) => end === 'max');
  const way = direction(step, resource);
  return isFinite && hadNone !== hasNone ? -way : way;
}

/** The direction in which a step changes the pod limit: -1, 0 or 1; undefined if it does not. */
export function podDirection(step: Step, resource: Resource): number | undefined {
  if (step.kind === 'pod-memory' && resource === 'memory') return Math.sign(amount(step.to) - amount(step.from));
  if (step.kind === 'pod-cpu' && resource === 'cpu') return Math.sign(rate(step.to) - rate(step.from));
  return undefined;
}

/** Formats a pod, its requested changes and its plan for the message of a failed property. */
export function describeCase(state: PodState, target: PodTarget, steps: readonly Step[]): string {
  const { overhead } = state;
  return [
    '',
    `pod: ${limits(state)}, overhead ${size(overhead.memory)} ${cpuText(overhead.cpu)}`,
    ...state.containers.map((container) => `  ${container.id}: ${limits(container)}`),
    ...(state.declared?.containers ?? []).map((container) => `  ${declaredText(container)}`),
    ...(state.declared?.limits ? [`  pod level: ${amountsText(state.declared.limits)}`] : []),
    ...state.volumes.map((volume) => `  volume ${volume.name}: ${size(volume.size)}`),
    `target: ${limits(target)}`,
    ...(target.containers ?? []).map((change) => `  ${change.id}: ${limits(change)}`),
    ...[...target.volumes].map(([name, to]) => `  volume ${name}: ${size(to)}`),
    'steps:',
    ...steps.map((step) => `  ${inMebibytes(describeStep(step))}`),
    '',
  ].join('\n');
}

function limits({ memory, cpu, shares }: Partial<LiveContainer | ContainerLimits>): string {
  const parts = [
    ...(memory === undefined ? [] : [`memory ${size(memory)}`]),
    ...(cpu === undefined ? [] : [`cpu ${cpuText(cpu)}`]),
    ...(shares === undefined ? [] : [`shares ${shares}`]),
  ];
  return parts.length === 0 ? 'unchanged' : parts.join(', ');
}

const declaredText = ({ name, kind, state, limits = {} }: DeclaredContainer): string =>
  `${name} is an ${kind} container, ${state}${state === 'running' ? '' : `: ${amountsText(limits)}`}`;

const amountsText = ({ memory, milliCpu }: Amounts): string =>
  `memory ${size(memory ?? 'max')}, cpu ${milliCpu === undefined ? 'max' : `${milliCpu}m`}`;

const cpuText = ({ quota, period }: CpuMax): string => `${quota}/${period}`;

const size = (value: number | 'max'): string =>
  value !== 'max' && value > 0 && value % MiB === 0 ? `${value / MiB}Mi` : String(value);

const inMebibytes = (text: string): string => text.replaceAll(/\d{7,}/g, (digits) => size(Number(digits)));
