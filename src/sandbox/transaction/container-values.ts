import {
  type CgroupPath,
  type CgroupTree,
  isCgroupVanished,
  isRoundedInUnit,
  isSystemdUnit,
  restoringSetting,
  sharesOfWeight,
  weightMatchesShares,
} from '../../cgroups/index.ts';
import type { CpuShares, CpuWeight } from '../../core/index.ts';
import {
  type CallOptions,
  type ContainerDescription,
  ContainerState,
  type PodDescription,
} from '../../runtime/index.ts';
import type { Node } from '../node.ts';
import { sameCpu, sameMemory } from '../plan/amounts.ts';
import type { Change, ContainerStep } from '../plan/step.ts';
import type { ContainerLimits, EffectiveLimits, Settings } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT } from '../pods/read-pod.ts';
import { readSettings, type StoredValues, storedValues } from '../pods/stored-limits.ts';
import { CPU_MAX, goingAlong, withPinned } from './container-update.ts';

/** A place that has a container's values: the kernel, while the container runs, or the store of the runtime. */
interface Place extends EffectiveLimits {
  /** Whether the place has this content of a file. Undefined if the file's format is not known. */
  readonly holds: (file: string, text: string) => boolean | undefined;
}

type InStore = Place & StoredValues;

interface InKernel extends Place {
  readonly cgroup: CgroupPath;
  /** Compared instead of shares: several numbers of shares result in the same weight. */
  readonly weight: CpuWeight | undefined;
}

const fields = ['memory', 'cpu', 'shares', 'swap'] as const;
type Field = (typeof fields)[number];

/**
 * The values of a container in the kernel and in the runtime's store, all fields of LinuxContainerResources (KEP-1287,
 * atomic resizes). Neither exists if the container was removed.
 */
export class ContainerValues {
  private constructor(
    readonly tree: CgroupTree,
    readonly container: ContainerDescription | undefined,
    /** Undefined when it does not run. */
    readonly kernel: InKernel | undefined,
    /** Undefined when the runtime does not report (containerd before 1.7). */
    readonly store: InStore | undefined,
  ) {}

  /** Reads the values. Throws CGROUP_UNAVAILABLE if the container's files are unreadable, and errors of the backend. */
  static async of(node: Node, pod: PodDescription, id: string, options?: CallOptions): Promise<ContainerValues> {
    const { tree } = node;
    const container = await node.registry.describeContainer(id, options);
    const store = inStore(tree, container);
    try {
      return new ContainerValues(tree, container, await inKernel(node, pod, container), store);
    } catch (error) {
      if (!isCgroupVanished(error) || container === undefined) throw error;
      // The container has just ended.
      return new ContainerValues(tree, { ...container, state: ContainerState.CONTAINER_EXITED }, undefined, store);
    }
  }

  get #all(): readonly (InKernel | InStore)[] {
    return [this.kernel, this.store].filter((place) => place !== undefined);
  }

  /** Returns the wanted values that the kernel or the store lacks. Undefined when both have all of them. */
  missing(wanted: ContainerLimits): ContainerLimits | undefined {
    return pick(
      wanted,
      (field) => this.#all.some((place) => !has(place, field, wanted)),
      (file, text) => this.#all.some((place) => place.holds(file, text) !== true),
    );
  }

  /** Whether both places have all of these values, possibly rounded by systemd. */
  hasAll(values: ContainerLimits): boolean {
    const lacks = (field: Field): boolean =>
      this.#all.some((place) => !has(place, field, values) && !rounds(place, field, values));
    const lacksFile = (file: string, text: string): boolean =>
      this.#all.some((place) => place.holds(file, text) === false);
    return pick(values, lacks, lacksFile) === undefined;
  }

  /** Returns the step from the container's present values to these, including values that must be written along. */
  stepTo(limits: ContainerLimits): ContainerStep {
    const now = this.kernel ?? this.store;
    const { id, memory: wanted, cpu, shares, swap, settings } = this.#withStored(limits);
    // The runtime stores swap as the sum with memory.
    const memory = wanted ?? (swap === undefined ? undefined : now?.memory);
    const swapNow = memory === undefined ? undefined : (swap ?? this.kernel?.swap);
    return {
      kind: 'container',
      id,
      ...(memory !== undefined && { memory: { from: now?.memory ?? memory, to: memory } }),
      ...(cpu !== undefined && { cpu: { from: now?.cpu ?? cpu, to: cpu } }),
      ...(shares !== undefined && { shares: { from: this.store?.shares ?? shares, to: shares } }),
      ...(swapNow !== undefined && { swap: { from: now?.swap ?? swapNow, to: swapNow } }),
      ...(settings && { settings: this.#settingChanges(settings) }),
    };
  }

  /**
   * Returns an update that repeats the present values of a step's fields: those of the kernel, or of the store if the
   * container does not run. Undefined if it was removed.
   */
  repeated(step: ContainerStep): ContainerStep | undefined {
    const { id, memory, cpu, shares, swap, settings = {} } = step;
    const { kernel, store, tree } = this;
    const now = kernel ?? store;
    if (now === undefined) return undefined;
    const isRounded =
      kernel !== undefined && store !== undefined && isRoundedInUnit(kernel.cgroup, store.cpu, kernel.cpu);
    return this.stepTo({
      id,
      ...(memory && { memory: now.memory }),
      ...(cpu && { cpu: isRounded ? store.cpu : now.cpu }),
      ...(shares && store?.shares !== undefined && { shares: this.foreign(step)?.shares ?? store.shares }),
      ...(swap && now.swap !== undefined && { swap: now.swap }),
      ...(kernel && { settings: readSettings(tree, kernel.cgroup, Object.keys(settings)) }),
    });
  }

  /**
   * Returns the update that restores a weight written by another process. A runtime with the other formula changes the
   * weight when an update sets {@link sharesIn the shares for it}. Undefined if the weight has not changed. Call it
   * only if another process has certainly written the weight: by the other formula, the container's own old shares may
   * also match its new weight.
   */
  weightBack({ id, shares }: ContainerStep): ContainerStep | undefined {
    const { kernel, tree } = this;
    if (kernel?.weight === undefined || shares?.to !== sharesIn(kernel)) return undefined;
    if (tree.readLimitsNow(kernel.cgroup).cpuWeight === kernel.weight) return undefined;
    return this.stepTo({ id, shares: sharesOfWeight(kernel.weight, 'old') });
  }

  /** Adds the values that must be written along with any update, since the runtime writes all its stored values. */
  #withStored(limits: ContainerLimits): ContainerLimits {
    const { kernel, store } = this;
    if (store === undefined) return limits;
    const along = kernel === undefined ? {} : goingAlong(this.tree, kernel.cgroup, store.settings);
    return withPinned(store.settings, { ...limits, settings: { ...along, ...limits.settings } });
  }

  #settingChanges(settings: Settings): NonNullable<ContainerStep['settings']> {
    const files = Object.keys(settings);
    const now = this.kernel === undefined ? this.store?.settings : readSettings(this.tree, this.kernel.cgroup, files);
    return Object.fromEntries(Object.entries(settings).map(([file, to]) => [file, { from: now?.[file] ?? to, to }]));
  }

  /** Whether a value that a step writes along is lost, because the runtime has written its stored value. */
  #isOverwritten(file: string, { from, to }: { readonly from: string; readonly to: string }): boolean {
    const stored = this.store?.settings[file];
    if (from !== to || stored === undefined || this.kernel === undefined) return false;
    return this.kernel.holds(file, stored) === true && this.kernel.holds(file, from) === false;
  }

  #isSwapOverwritten({ swap }: ContainerStep): boolean {
    const [stored, found] = [this.store?.swap, this.kernel?.swap];
    if (swap === undefined || swap.from !== swap.to || stored === undefined || found === undefined) return false;
    return sameMemory(found, stored) && !sameMemory(found, swap.from);
  }

  /**
   * Returns the present values of a step's fields that are neither the step's old nor its new ones in the kernel:
   * another process has written them, regardless of the runtime's store. Undefined if there are none.
   */
  foreign(step: ContainerStep): ContainerLimits | undefined {
    const { kernel, tree } = this;
    if (kernel === undefined) return undefined;
    const { from, to } = beforeAndAfter(withoutUnchanged(step));
    // Excludes a memory.high that is lowered temporarily, because the shim has written it.
    const files = readSettings(tree, kernel.cgroup, Object.keys(to.settings ?? {}));
    const isForeignFile = (file: string, text: string): boolean =>
      file in files &&
      // systemd rounds the quota of a unit.
      !(file === CPU_MAX && isSystemdUnit(kernel.cgroup)) &&
      [text, from.settings?.[file] ?? ''].every((value) => kernel.holds(file, value) === false);
    const found = pick(to, (field) => isForeign(kernel, field, from, to), isForeignFile);
    if (found === undefined) return undefined;
    const { id, memory, cpu, shares, swap, settings } = found;
    return {
      id,
      ...(memory !== undefined && { memory: kernel.memory }),
      ...(cpu && { cpu: kernel.cpu }),
      ...(shares !== undefined && { shares: sharesIn(kernel) ?? shares }),
      ...(swap !== undefined && { swap: kernel.swap ?? swap }),
      ...(settings && { settings: presentSettings(settings, files) }),
    };
  }

  /**
   * Returns the part of a step that is applied and that no other process has overwritten since. Values of another
   * process are written along. Undefined if no part of the step is left.
   */
  stillWritten(step: ContainerStep): ContainerStep | undefined {
    const written = this.written(step);
    const foreign = this.foreign(step);
    if (written === undefined || foreign === undefined) return written;
    const { settings: files = {}, ...others } = written;
    const values = Object.entries(others).filter(
      ([field]) => field === 'kind' || field === 'id' || !(field in foreign),
    );
    const settings = Object.entries(files).filter(([file]) => foreign.settings?.[file] === undefined);
    if (values.length === 2 && settings.length === 0) return undefined;
    // Otherwise the runtime would write the values that it has stored.
    const along = unchanged(foreign);
    return {
      ...along,
      ...Object.fromEntries(values),
      ...((settings.length > 0 || along.settings) && {
        settings: { ...along.settings, ...Object.fromEntries(settings) },
      }),
    };
  }

  /** Returns the part of a step that at least one place has. Undefined if there is none. */
  written(step: ContainerStep): ContainerStep | undefined {
    const { from, to } = beforeAndAfter(step);
    // A value that matches both the old and the new one is ambiguous.
    const found = pick(
      to,
      (field) => this.#all.some((place) => isAt(place, field, to, from) && !isAt(place, field, from, to)),
      (file, text) =>
        this.#all.some(
          (place) => place.holds(file, text) === true && place.holds(file, from.settings?.[file] ?? '') !== true,
        ),
    );
    if (found === undefined) return undefined;
    const { kind, id, settings, ...changes } = step;
    const parts = Object.entries(changes).filter(
      ([field]) => field in found || (field === 'swap' && this.#isSwapOverwritten(step)),
    );
    const files = Object.entries(settings ?? {}).filter(
      ([file, change]) => found.settings?.[file] !== undefined || this.#isOverwritten(file, change),
    );
    return {
      kind,
      id,
      ...(Object.fromEntries(parts) as Omit<ContainerStep, 'kind' | 'id'>),
      ...(files.length > 0 && { settings: Object.fromEntries(files) }),
    };
  }
}

/** Returns a step without the values that are only written along. */
export function withoutUnchanged({ settings = {}, swap, ...step }: ContainerStep): ContainerStep {
  const changed = Object.entries(settings).filter(([, { from, to }]) => from !== to);
  return {
    ...step,
    ...(swap && swap.from !== swap.to && { swap }),
    ...(changed.length > 0 && { settings: Object.fromEntries(changed) }),
  };
}

/** Returns the values of a step before and after it. */
export function beforeAndAfter({ id, memory, cpu, shares, swap, settings }: ContainerStep): {
  from: ContainerLimits;
  to: ContainerLimits;
} {
  const end = (side: 'from' | 'to'): ContainerLimits => ({
    id,
    ...(memory && { memory: memory[side] }),
    ...(cpu && { cpu: cpu[side] }),
    ...(shares && { shares: shares[side] }),
    ...(swap && { swap: swap[side] }),
    ...(settings && {
      settings: Object.fromEntries(Object.entries(settings).map(([file, change]) => [file, change[side]])),
    }),
  });
  return { from: end('from'), to: end('to') };
}

/** Returns a step in which these values are only written along. */
function unchanged({ id, memory, cpu, shares, swap, settings }: ContainerLimits): ContainerStep {
  const same = <Value>(value: Value): Change<Value> => ({ from: value, to: value });
  return {
    kind: 'container',
    id,
    ...(memory !== undefined && { memory: same(memory) }),
    ...(cpu && { cpu: same(cpu) }),
    ...(shares !== undefined && { shares: same(shares) }),
    ...(swap !== undefined && { swap: same(swap) }),
    ...(settings && {
      settings: Object.fromEntries(Object.entries(settings).map(([file, text]) => [file, same(text)])),
    }),
  };
}

/** Returns settings that write the present contents of these files again after a step has changed them. */
const presentSettings = (changed: Settings, found: Settings): Settings =>
  Object.fromEntries(
    Object.entries(changed).map(([file, text]) => [file, restoringSetting(file, text, found[file] ?? text)]),
  );

/** Returns the shares for a weight that another process has written, as a status reports them. */
const sharesIn = ({ weight }: InKernel): CpuShares | undefined =>
  weight === undefined ? undefined : sharesOfWeight(weight, 'new');

/** Whether the kernel has neither of these two values. */
function isForeign(kernel: InKernel, field: Field, from: ContainerLimits, to: ContainerLimits): boolean {
  // The runtime may choose another period.
  if (field === 'cpu' && kernel.cpu.quota === to.cpu?.quota) return false;
  return !isAt(kernel, field, to, from) && !isAt(kernel, field, from, to);
}

function pick(
  values: ContainerLimits,
  isWanted: (field: Field) => boolean,
  isWantedFile: (file: string, text: string) => boolean,
): ContainerLimits | undefined {
  const left = fields.filter((field) => values[field] !== undefined && isWanted(field));
  const files = Object.entries(values.settings ?? {}).filter(([file, text]) => isWantedFile(file, text));
  if (left.length + files.length === 0) return undefined;
  return {
    id: values.id,
    ...Object.fromEntries(left.map((field) => [field, values[field]])),
    ...(files.length > 0 && { settings: Object.fromEntries(files) }),
  };
}

/** Whether a place has the value of this field. An absent value counts. */
function has(place: InKernel | InStore, field: Field, { memory, cpu, shares, swap }: ContainerLimits): boolean {
  switch (field) {
    case 'memory':
      // Either value may come from the kernel, which rounds to pages.
      return memory === undefined || sameMemory(place.memory, memory) || sameMemory(memory, place.memory);
    case 'cpu':
      return cpu === undefined || sameCpu(place.cpu, cpu);
    case 'shares':
      return shares === undefined || hasShares(place, shares);
    case 'swap':
      return swap === undefined || place.swap === undefined || sameMemory(place.swap, swap);
  }
}

/** Whether the place has this field's value as systemd rounds it. */
const rounds = (place: InKernel | InStore, field: Field, { cpu }: ContainerLimits): boolean =>
  field === 'cpu' && cpu !== undefined && 'cgroup' in place && isRoundedInUnit(place.cgroup, cpu, place.cpu);

/** Whether a place has `value` rather than `other`. A value rounded by systemd does not count if it is `other`. */
const isAt = (place: InKernel | InStore, field: Field, value: ContainerLimits, other: ContainerLimits): boolean =>
  has(place, field, value) || (rounds(place, field, value) && !has(place, field, other));

function hasShares(place: InKernel | InStore, wanted: CpuShares): boolean {
  if (!('cgroup' in place)) return place.shares === wanted;
  // 0: the runtime got no shares and has chosen a weight.
  return place.weight === undefined || wanted === 0 || weightMatchesShares(place.weight, wanted);
}

async function inKernel(
  node: Node,
  pod: PodDescription,
  container: ContainerDescription | undefined,
): Promise<InKernel | undefined> {
  if (container?.state !== ContainerState.CONTAINER_RUNNING) return undefined;
  const cgroup = await node.cgroups.of(container, pod);
  if (cgroup === undefined) return undefined;
  const { tree } = node;
  const { memoryMax, cpuMax, cpuWeight } = await tree.readLimits(cgroup);
  const swap = tree.readSwapMax(cgroup);
  return {
    cgroup,
    memory: memoryMax,
    cpu: cpuMax ?? NO_CPU_LIMIT,
    weight: cpuWeight,
    ...(swap !== undefined && { swap }),
    holds(file, text) {
      const found = tree.readSetting(cgroup, file);
      // A file that the kernel lacks needs no restore.
      return found === undefined || tree.holdsSetting(file, text, found);
    },
  };
}

function inStore(tree: CgroupTree, container: ContainerDescription | undefined): InStore | undefined {
  const stored = storedValues(container?.resources);
  if (stored === undefined) return undefined;
  return {
    ...stored,
    holds(file, text) {
      const found = stored.settings[file];
      // The runtime does not write values that it has not stored.
      return found === undefined || tree.holdsSetting(file, text, found);
    },
  };
}
