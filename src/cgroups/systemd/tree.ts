/** Writes for nodes where systemd owns the cgroups of pods. */
import { crashPoint } from '../../core/crash-points/index.ts';
import { Code, Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import { CgroupTree, type Written } from '../tree.ts';
import { parseCpuMax } from '../cpu.ts';
import type { CgroupDriverName } from '../drivers.ts';
import { type CgroupPath, cgroupFilePath, writeFailed } from '../file.ts';
import { type Systemd, unitUnavailable } from './busctl.ts';
import { type UnitProperty, isRoundedInUnit, isSameProperty, propertiesOf, systemdUnitOf } from '../systemd-units.ts';
import type { CgroupWrite } from '../write.ts';

export interface DriverTreeOptions {
  /** Where cgroup v2 is mounted, /sys/fs/cgroup unless said otherwise. */
  readonly root?: string;
  /** The cgroup driver of this node; asked at each write of a cgroup that is a unit's by its name. */
  readonly driver: () => Promise<CgroupDriverName>;
  readonly systemd: Systemd;
}

const OOM_GROUP = 'memory.oom.group';

interface UnitWrite {
  readonly unit: string;
  readonly file: string;
  readonly properties: readonly UnitProperty[];
}

/**
 * cgroup v2 by its files, and of cgroups that are units of systemd by these: whenever anybody changes any setting of a
 * unit, systemd writes all of them anew, and what only the file had is gone. So a value is set on the unit, for this run of the machine, and
 * then looked for in the file. A quota, of which systemd keeps whole percents, is also written to the file as it was
 * asked for, as runc and kubelet do it.
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
   * As {@link CgroupTree.write}. Of a unit it throws as well UNIT_UNAVAILABLE when there is no such unit, or it is not the one
   * that has the cgroup, and SYSTEMD_UNAVAILABLE when systemd does not answer. Whatever it throws, the unit is as it was, or
   * as somebody else has set it meanwhile; UNDO_FAILED when it cannot be put back.
   */
  override async write(cgroup: CgroupPath, step: CgroupWrite): Promise<Written> {
    const unit = systemdUnitOf(cgroup);
    const asked = unit === undefined ? undefined : propertiesOf(step);
    if (unit === undefined || asked === undefined || (await this.#driver()) !== 'systemd')
      return super.write(cgroup, step);
    return this.#writeUnit(cgroup, step, { unit, ...asked });
  }

  async #writeUnit(cgroup: CgroupPath, step: CgroupWrite, asked: UnitWrite): Promise<Written> {
    // A cgroup that has gone is said to be gone, whatever systemd knows of it.
    await this.readFile(cgroup, asked.file);
    const before = await this.#readUnless(cgroup, asked, () => this.has(cgroup, step));
    if (before === 'needless') return super.write(cgroup, step);
    const kept = this.#rewritten(cgroup, asked.file);
    if (asked.properties.every((property) => isSameProperty(property, before.get(property.name))))
      return this.#writeFile(cgroup, step);
    try {
      await this.#set(asked);
    } catch (error) {
      // It may have come through all the same.
      return this.#putBack(asked, before, error);
    }
    const after = await this.#read(cgroup, asked);
    const other = asked.properties.find((property) => !isSameProperty(property, after.get(property.name)));
    if (other !== undefined) throw this.#overwritten(cgroup, asked.file, other, after.get(other.name));
    try {
      const { found } = await this.#writeFile(cgroup, step);
      for (const one of kept) await this.#keep(cgroup, one);
      return { outcome: 'written', found };
    } catch (error) {
      return this.#putBack(asked, before, error);
    }
  }

  /** The file has the value by now, unless systemd rounds it or the kernel has refused it, which systemd does not tell. */
  async #writeFile(cgroup: CgroupPath, step: CgroupWrite): Promise<Written> {
    try {
      return await super.write(cgroup, step);
    } catch (error) {
      const found = error instanceof ShimError ? error.context.found : undefined;
      // Somebody has changed another setting of the unit just then.
      if (step.file !== 'cpu.max' || found === undefined || !this.holdsCpu(cgroup, step.value, parseCpuMax(found)))
        throw error;
      return { outcome: 'written', found };
    }
  }

  /** A value that is there already needs no systemd: what it has not written, it being away, can be undone all the same. */
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

  /** What files have that systemd, which writes them all, has no words for: to be kept. */
  #rewritten(cgroup: CgroupPath, written: string): readonly CgroupWrite[] {
    const { cpuMax } = this.readLimitsNow(cgroup);
    const quota = cpuMax && written !== 'cpu.max' ? [{ file: 'cpu.max', value: cpuMax } as const] : [];
    const oomGroup = this.readOomGroup(cgroup);
    return [...quota, ...(oomGroup === '1' ? [{ file: 'unified', key: OOM_GROUP, value: oomGroup } as const] : [])];
  }

  async #keep(cgroup: CgroupPath, one: CgroupWrite): Promise<void> {
    const { cpuMax } = this.readLimitsNow(cgroup);
    // Anything but a rounded quota has been set by somebody else.
    if (one.file === 'cpu.max' && (cpuMax === undefined || !isRoundedInUnit(cgroup, one.value, cpuMax))) return;
    await super.write(cgroup, one);
  }

  async #read(cgroup: CgroupPath, { unit, properties }: UnitWrite): Promise<ReadonlyMap<string, bigint>> {
    const names = properties.map(({ name }) => name);
    const state = await this.#systemd.read(unit, names);
    if (state.cgroup === cgroup) return state.properties;
    // It has gone since the file was read: then so has its pod.
    await this.readFile(cgroup, 'memory.max');
    const found = state.cgroup === '' ? 'systemd has no such unit that is active' : `its cgroup is ${state.cgroup}`;
    throw unitUnavailable(unit, `${found}, and the limits of ${cgroup} are to be set`);
  }

  async #set({ unit, file, properties }: UnitWrite): Promise<void> {
    crashPoint('cgroup-write-before', file);
    await this.#systemd.set(unit, properties);
    crashPoint('cgroup-write-after', file);
  }

  /** Gives the unit what it had, and throws the error that was the cause. */
  async #putBack({ unit, properties }: UnitWrite, before: ReadonlyMap<string, bigint>, cause: unknown): Promise<never> {
    try {
      const { properties: now } = await this.#systemd.read(unit, [...before.keys()]);
      // Of others, who have written meanwhile, nothing is taken back.
      const ours = properties.filter((property) => isSameProperty(property, now.get(property.name)));
      const previous = ours.map(({ name }): UnitProperty => ({ name, value: before.get(name) ?? now.get(name) ?? 0n }));
      if (previous.some(({ name, value }) => now.get(name) !== value)) await this.#systemd.set(unit, previous);
    } catch (error) {
      // Nothing came through, as far as can be told, when systemd was away before and is away now.
      if (cause instanceof ShimError && cause.reason === Reason.SYSTEMD_UNAVAILABLE) throw cause;
      const message = `${messageOf(cause)}; unit ${unit} cannot be put back: ${messageOf(error)}`;
      throw new ShimError(Code.INTERNAL, Reason.UNDO_FAILED, message, { file: unit }, { cause: error });
    }
    throw cause;
  }

  #overwritten(cgroup: CgroupPath, file: string, asked: UnitProperty, found: bigint | undefined): ShimError {
    const why = `its unit has ${asked.name}=${String(found)} afterwards, and not ${asked.value}`;
    return writeFailed(cgroupFilePath(this.root, cgroup, file), String(asked.value), why, { found: String(found) });
  }
}

const isUnavailable = (error: unknown): boolean =>
  error instanceof ShimError &&
  (error.reason === Reason.SYSTEMD_UNAVAILABLE || error.reason === Reason.UNIT_UNAVAILABLE);
