/** Cgroup writes for nodes where systemd owns the cgroups of pods. */
import { Code, crashPoint, messageOf, Reason, ShimError } from '../core/index.ts';
import { isUnknownProperty, type Systemd, unitUnavailable } from './busctl.ts';
import type { CgroupDriverName } from './drivers.ts';
import { type CgroupPath, cgroupFilePath, writeFailed } from './file.ts';
import { isRoundedInUnit, isSameProperty, propertiesOf, systemdUnitOf, type UnitProperty } from './systemd-units.ts';
import { CgroupTree, type Written } from './tree.ts';
import { parseCpuMax } from './values/controller-files.ts';
import type { CgroupWrite } from './values/write.ts';

export interface DriverTreeOptions {
  /** Mount point of cgroup v2, by default /sys/fs/cgroup. */
  readonly root?: string;
  /** Returns the cgroup driver of this node. Called at each write to a cgroup that has the name of a unit. */
  readonly driver: () => Promise<CgroupDriverName>;
  readonly systemd: Systemd;
}

const OOM_GROUP = 'memory.oom.group';
const CPUSETS = ['cpuset.cpus', 'cpuset.mems'] as const;

interface UnitWrite {
  readonly unit: string;
  readonly file: string;
  readonly properties: readonly UnitProperty[];
}

/** The values that a write to a unit replaces. */
interface Previous {
  readonly cgroup: CgroupPath;
  readonly asked: UnitWrite;
  readonly properties: ReadonlyMap<string, bigint>;
  /** Values that are only in the cgroup's files, and that systemd overwrites. */
  readonly lost: readonly CgroupWrite[];
}

/**
 * Writes cgroups that are systemd units through systemd, and other cgroups through their files. When any property of a
 * unit changes, systemd writes all of them again, and values that only the file had are lost. So this sets the value on
 * the unit, until the next reboot, and then verifies the file. systemd rounds quotas to whole percents, so the exact
 * quota is also written to the file, like runc and kubelet do.
 */
export class DriverCgroupTree extends CgroupTree {
  readonly #driver: DriverTreeOptions['driver'];
  readonly #systemd: Systemd;

  constructor({ root, driver, systemd }: DriverTreeOptions) {
    super(root);
    this.#driver = driver;
    this.#systemd = systemd;
  }

  /**
   * Writes like {@link CgroupTree.write}. For a unit, also throws UNIT_UNAVAILABLE if the unit does not exist or has
   * another cgroup, and SYSTEMD_UNAVAILABLE if systemd does not respond. After an error the unit has its previous
   * values, or those that another process has set meanwhile. Throws UNDO_FAILED if they cannot be restored.
   */
  override async write(cgroup: CgroupPath, step: CgroupWrite): Promise<Written> {
    const unit = systemdUnitOf(cgroup);
    const asked = unit === undefined ? undefined : propertiesOf(step);
    if (unit === undefined || asked === undefined || (await this.#driver()) !== 'systemd')
      return super.write(cgroup, step);
    try {
      return await this.#writeUnit(cgroup, step, { unit, ...asked });
    } catch (error) {
      // This systemd does not overwrite the file then. Or the kernel lacks the file, and the write reports that.
      if (isUnknownProperty(error)) return super.write(cgroup, step);
      throw error;
    }
  }

  async #writeUnit(cgroup: CgroupPath, step: CgroupWrite, asked: UnitWrite): Promise<Written> {
    // Throws CgroupVanished if the cgroup no longer exists, before systemd is asked.
    await this.readFile(cgroup, asked.file);
    const before = await this.#readUnless(cgroup, asked, () => this.has(cgroup, step));
    if (before === 'needless') return super.write(cgroup, step);
    const lost = this.#overwrittenBySystemd(cgroup, asked.file);
    if (asked.properties.every((property) => isSameProperty(property, before.get(property.name))))
      return this.#writeFile(cgroup, step);
    const previous: Previous = { cgroup, asked, properties: before, lost };
    try {
      await this.#set(asked);
    } catch (error) {
      // The change may have been applied despite the error.
      return this.#restore(previous, error);
    }
    const after = await this.#read(cgroup, asked);
    const other = asked.properties.find((property) => !isSameProperty(property, after.get(property.name)));
    if (other !== undefined) throw this.#overwritten(cgroup, asked.file, other, after.get(other.name));
    try {
      const { found } = await this.#writeFile(cgroup, step);
      for (const one of lost) if (!isOf(one, asked.file)) await this.#rewrite(cgroup, one);
      return { outcome: 'written', found };
    } catch (error) {
      return this.#restore(previous, error);
    }
  }

  /** Writes the file, in case systemd rounded the value or did not report that the kernel rejected it. */
  async #writeFile(cgroup: CgroupPath, step: CgroupWrite): Promise<Written> {
    try {
      return await super.write(cgroup, step);
    } catch (error) {
      const found = error instanceof ShimError ? error.context.found : undefined;
      // Another process has just changed another property of the unit, so that systemd wrote the rounded quota again.
      if (step.file !== 'cpu.max' || found === undefined || !this.holdsCpu(cgroup, step.value, parseCpuMax(found)))
        throw error;
      return { outcome: 'written', found };
    }
  }

  /** Reads the unit. `needless`: systemd is unavailable but the file has the value, so rollbacks still work. */
  async #readUnless(
    cgroup: CgroupPath,
    asked: UnitWrite,
    isThere: () => boolean,
  ): Promise<ReadonlyMap<string, bigint> | 'needless'> {
    try {
      return await this.#read(cgroup, asked);
    } catch (error) {
      if (isUnavailable(error) && isThere()) return 'needless';
      throw error;
    }
  }

  /**
   * Returns the values that systemd overwrites and that may be only in the files: the caller writes them again. systemd
   * writes the cpusets of a unit if the controller is enabled for the unit, as for the slice of a delegated scope, and
   * clears cpusets for which it has no value (systemd src/core/cgroup.c, cgroup_context_apply).
   */
  #overwrittenBySystemd(cgroup: CgroupPath, written: string): readonly CgroupWrite[] {
    const cpuMax = this.readCpuMax(cgroup);
    const quota = cpuMax && written !== 'cpu.max' ? [{ file: 'cpu.max', value: cpuMax } as const] : [];
    const oomGroup = this.readOomGroup(cgroup);
    const cpusets = CPUSETS.flatMap((key) => {
      const value = this.readCpuset(cgroup, key) ?? '';
      return value === '' ? [] : [{ file: 'unified', key, value } as const];
    });
    return [
      ...quota,
      ...(oomGroup === '1' ? [{ file: 'unified', key: OOM_GROUP, value: oomGroup } as const] : []),
      ...cpusets,
    ];
  }

  async #rewrite(cgroup: CgroupPath, one: CgroupWrite): Promise<void> {
    const cpuMax = this.readCpuMax(cgroup);
    // A quota other than the rounded one was set by another process.
    if (one.file === 'cpu.max' && (cpuMax === undefined || !isRoundedInUnit(cgroup, one.value, cpuMax))) return;
    await super.write(cgroup, one);
  }

  async #read(cgroup: CgroupPath, { unit, properties }: UnitWrite): Promise<ReadonlyMap<string, bigint>> {
    const names = properties.map(({ name }) => name);
    const state = await this.#systemd.read(unit, names);
    if (state.cgroup === cgroup) return state.properties;
    // Throws CgroupVanished if the cgroup was removed since the file was read.
    await this.readFile(cgroup, 'memory.max');
    const found = state.cgroup === '' ? 'systemd has no active unit of that name' : `its cgroup is ${state.cgroup}`;
    throw unitUnavailable(unit, `${found}; cannot set the limits of ${cgroup}`);
  }

  async #set({ unit, file, properties }: UnitWrite): Promise<void> {
    crashPoint('cgroup-write-before', file);
    await this.#systemd.set(unit, properties);
    crashPoint('cgroup-write-after', file);
  }

  /** Restores the unit's previous values and throws the error that was the cause. */
  async #restore({ cgroup, asked, properties: before, lost }: Previous, cause: unknown): Promise<never> {
    const { unit, properties } = asked;
    try {
      const { properties: now } = await this.#systemd.read(unit, [...before.keys()]);
      // Does not revert values that other processes have set meanwhile.
      const ours = properties.filter((property) => isSameProperty(property, now.get(property.name)));
      const previous = ours.map(({ name }): UnitProperty => ({ name, value: before.get(name) ?? now.get(name) ?? 0n }));
      if (previous.some(({ name, value }) => now.get(name) !== value)) await this.#systemd.set(unit, previous);
      if (ours.length > 0) for (const one of lost) await this.#rewrite(cgroup, one);
    } catch (error) {
      // If systemd was unavailable before and still is, most likely nothing was applied.
      if (cause instanceof ShimError && cause.reason === Reason.SYSTEMD_UNAVAILABLE) throw cause;
      const message = `${messageOf(cause)}; unit ${unit} cannot be restored: ${messageOf(error)}`;
      throw new ShimError(Code.INTERNAL, Reason.UNDO_FAILED, message, { file: unit }, { cause: error });
    }
    throw cause;
  }

  #overwritten(cgroup: CgroupPath, file: string, asked: UnitProperty, found: bigint | undefined): ShimError {
    const why = `its unit has ${asked.name}=${String(found)} after the write instead of ${asked.value}`;
    return writeFailed(cgroupFilePath(this.root, cgroup, file), String(asked.value), why, { found: String(found) });
  }
}

/** Whether a write changes this file. */
const isOf = (write: CgroupWrite, file: string): boolean =>
  (write.file === 'unified' ? write.key : write.file) === file;

const isUnavailable = (error: unknown): boolean =>
  error instanceof ShimError &&
  (error.reason === Reason.SYSTEMD_UNAVAILABLE || error.reason === Reason.UNIT_UNAVAILABLE);
