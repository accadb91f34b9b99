import {
  type CgroupPath,
  type CgroupTree,
  isCgroupVanished,
  isRoundedInUnit,
  weightMatchesShares,
} from '../../cgroups/index.ts';
import { type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { type CpuShares, type CpuWeight, cpuShares } from '../../core/quantities/index.ts';
import {
  type ContainerLimits,
  type EffectiveLimits,
  NO_CPU_LIMIT,
  type Registry,
  containerCgroup,
  storedLimits,
} from '../../sandbox/index.ts';
import { type ContainerStep, sameCpu, sameMemory } from '../model/index.ts';

/** One of the two places with a container's values: the kernel, while it runs, and the store of the runtime. */
type Place = EffectiveLimits;

interface InStore extends Place {
  readonly shares: CpuShares;
}

interface InKernel extends Place {
  readonly cgroup: CgroupPath;
  /** Several numbers of shares give the same weight. */
  readonly weight: CpuWeight | undefined;
}

const fields = ['memory', 'cpu', 'shares'] as const;
type Field = (typeof fields)[number];

/** The values of a container in the kernel and in the runtime's store. In neither when the container is gone. */
export class ContainerValues {
  private constructor(
    readonly container: ContainerDescription | undefined,
    /** Undefined when it does not run. */
    readonly kernel: InKernel | undefined,
    /** Undefined when the runtime does not tell (containerd before 1.7). */
    readonly store: InStore | undefined,
  ) {}

  /** Throws CGROUP_UNAVAILABLE when its files cannot be read, and what asking the runtime throws. */
  static async of(
    parts: { readonly registry: Registry; readonly tree: CgroupTree; readonly procRoot?: string },
    pod: PodDescription,
    id: string,
  ): Promise<ContainerValues> {
    const container = await parts.registry.describeContainer(id);
    try {
      return new ContainerValues(container, await inKernel(parts, pod, container), inStore(container));
    } catch (error) {
      if (!isCgroupVanished(error) || container === undefined) throw error;
      // The container has just ended.
      return new ContainerValues({ ...container, state: ContainerState.EXITED }, undefined, inStore(container));
    }
  }

  get #all(): readonly (InKernel | InStore)[] {
    return [this.kernel, this.store].filter((place) => place !== undefined);
  }

  /** Returns the wanted values that the kernel or the store lacks. Undefined when both have all of them. */
  missing(wanted: ContainerLimits): ContainerLimits | undefined {
    return pick(wanted, (field) => this.#all.some((place) => !has(place, field, wanted)));
  }

  /** Whether both places have all of these values. A value that systemd has rounded since counts. */
  hasAll(values: ContainerLimits): boolean {
    const lacks = (field: Field): boolean =>
      this.#all.some((place) => !has(place, field, values) && !rounds(place, field, values));
    return pick(values, lacks) === undefined;
  }

  /** Returns the step from the container's present values to these. */
  stepTo({ id, memory, cpu, shares }: ContainerLimits): ContainerStep {
    const now = this.kernel ?? this.store;
    return {
      kind: 'container',
      id,
      ...(memory !== undefined && { memory: { from: now?.memory ?? memory, to: memory } }),
      ...(cpu !== undefined && { cpu: { from: now?.cpu ?? cpu, to: cpu } }),
      ...(shares !== undefined && { shares: { from: this.store?.shares ?? shares, to: shares } }),
    };
  }

  /** Returns the part of a step that at least one place has. Undefined when there is none. */
  written(step: ContainerStep): ContainerStep | undefined {
    const { from, to } = beforeAndAfter(step);
    // A value that matches both the old and the new one shows nothing.
    const found = pick(to, (field) =>
      this.#all.some((place) => isAt(place, field, to, from) && !isAt(place, field, from, to)),
    );
    if (found === undefined) return undefined;
    const { kind, id, ...changes } = step;
    const parts = Object.entries(changes).filter(([field]) => field in found);
    return { kind, id, ...(Object.fromEntries(parts) as Omit<ContainerStep, 'kind' | 'id'>) };
  }
}

/** Returns the values of a step before and after it. */
export function beforeAndAfter({ id, memory, cpu, shares }: ContainerStep): {
  from: ContainerLimits;
  to: ContainerLimits;
} {
  const end = (side: 'from' | 'to'): ContainerLimits => ({
    id,
    ...(memory && { memory: memory[side] }),
    ...(cpu && { cpu: cpu[side] }),
    ...(shares && { shares: shares[side] }),
  });
  return { from: end('from'), to: end('to') };
}

function pick(values: ContainerLimits, isWanted: (field: Field) => boolean): ContainerLimits | undefined {
  const left = fields.filter((field) => values[field] !== undefined && isWanted(field));
  if (left.length === 0) return undefined;
  return { id: values.id, ...Object.fromEntries(left.map((field) => [field, values[field]])) };
}

/** Whether a place has the value of this field. An absent value counts. */
function has(place: InKernel | InStore, field: Field, { memory, cpu, shares }: ContainerLimits): boolean {
  switch (field) {
    case 'memory':
      // Either of the two may be the kernel's, which is rounded to pages.
      return memory === undefined || sameMemory(place.memory, memory) || sameMemory(memory, place.memory);
    case 'cpu':
      return cpu === undefined || sameCpu(place.cpu, cpu);
    case 'shares':
      return shares === undefined || hasShares(place, shares);
  }
}

/** Whether the place has this field's value as systemd rounds it. */
const rounds = (place: InKernel | InStore, field: Field, { cpu }: ContainerLimits): boolean =>
  field === 'cpu' && cpu !== undefined && 'cgroup' in place && isRoundedInUnit(place.cgroup, cpu, place.cpu);

/** Whether a place has `value` rather than `other`. A value that systemd has rounded does not count if it equals `other`. */
const isAt = (place: InKernel | InStore, field: Field, value: ContainerLimits, other: ContainerLimits): boolean =>
  has(place, field, value) || (rounds(place, field, value) && !has(place, field, other));

function hasShares(place: InKernel | InStore, wanted: CpuShares): boolean {
  if ('shares' in place) return place.shares === wanted;
  // 0: the runtime got no shares and has chosen a weight.
  return place.weight === undefined || wanted === 0 || weightMatchesShares(place.weight, wanted);
}

async function inKernel(
  parts: { readonly tree: CgroupTree; readonly procRoot?: string },
  pod: PodDescription,
  container: ContainerDescription | undefined,
): Promise<InKernel | undefined> {
  if (container?.state !== ContainerState.RUNNING) return undefined;
  const cgroup = await containerCgroup(container, pod, parts.procRoot);
  if (cgroup === undefined) return undefined;
  const { memoryMax, cpuMax, cpuWeight } = await parts.tree.readLimits(cgroup);
  return { cgroup, memory: memoryMax, cpu: cpuMax ?? NO_CPU_LIMIT, weight: cpuWeight };
}

function inStore(container: ContainerDescription | undefined): InStore | undefined {
  const stored = storedLimits(container?.resources);
  return stored && { ...stored, shares: cpuShares(Number(container?.resources?.cpu_shares ?? 0n)) };
}
