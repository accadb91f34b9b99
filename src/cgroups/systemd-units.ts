/** Maps cgroups to systemd units, and settings to properties (systemd.resource-control(5), systemd1 on D-Bus). */
import { posix } from 'node:path';
import { type CpuMax, microseconds } from '../core/index.ts';
import type { CgroupPath } from './file.ts';
import { DEFAULT_CPU_PERIOD } from './values/controller-files.ts';
import { bitsOf } from './values/settings.ts';
import { sizeInBytes } from './values/unified.ts';
import type { CgroupWrite } from './values/write.ts';

/** A unit's property: an unsigned 64-bit number (D-Bus type `t`), or a set of CPUs or memory nodes as its bits. */
export interface UnitProperty {
  readonly name: string;
  readonly value: bigint;
}

/** UINT64_MAX, which means "no limit" and "not set" in systemd. */
export const UNSET = 2n ** 64n - 1n;

/** Set properties (D-Bus type `ay`: a byte's bits are numbers, lowest first). Empty: not set. Since systemd 244. */
const SETS: Readonly<Record<string, string>> = { 'cpuset.cpus': 'AllowedCPUs', 'cpuset.mems': 'AllowedMemoryNodes' };

/** Whether a property is a set. */
export const isSetProperty = (name: string): boolean => Object.values(SETS).includes(name);

/** systemd stores quotas as whole percents of a CPU across a reload, in all versions: microseconds per second. */
const PERCENT = 10_000;
const SECOND = 1_000_000;

/** Returns the unit of a cgroup by its name: a slice (pod) or a scope (container). Undefined for other names. */
export function systemdUnitOf(cgroup: CgroupPath): string | undefined {
  const name = posix.basename(cgroup);
  return /.\.(slice|scope)$/.test(name) ? name : undefined;
}

/** Whether a cgroup has the name of a unit. */
export const isSystemdUnit = (cgroup: CgroupPath): boolean => systemdUnitOf(cgroup) !== undefined;

/** Returns the D-Bus interface that has a unit's properties. */
export const dbusInterfaceOf = (unit: string): string =>
  `org.freedesktop.systemd1.${unit.endsWith('.slice') ? 'Slice' : 'Scope'}`;

/** Returns a unit's D-Bus object path. Escapes all but letters and non-leading digits as `_` and hexadecimal. */
export function dbusObjectOf(unit: string): string {
  const name = [...Buffer.from(unit)].map((byte, at) => {
    const character = String.fromCharCode(byte);
    const plain = at === 0 ? /[a-z]/i : /[a-z0-9]/i;
    return plain.test(character) ? character : `_${byte.toString(16).padStart(2, '0')}`;
  });
  return `/org/freedesktop/systemd1/unit/${name.join('')}`;
}

/**
 * Returns the cgroup file of a write and the matching properties. Undefined if systemd has none; then only the file
 * changes.
 *
 * memory.high, which the shim lowers temporarily (memory-high.ts), changes in the file only: the unit keeps its owner's
 * value, and systemd restores it when it next writes the unit's properties, even if the shim has died.
 */
export function propertiesOf(step: CgroupWrite): { file: string; properties: readonly UnitProperty[] } | undefined {
  const { file } = step;
  switch (file) {
    case 'memory.high':
      return undefined;
    case 'memory.max':
    case 'memory.low':
    case 'memory.min':
    case 'memory.swap.max':
      return one(file, step.value === 'max' ? UNSET : BigInt(step.value));
    case 'cpu.weight':
      return one(file, BigInt(step.value));
    case 'cpu.max':
      return { file, properties: quotaProperties(step.value) };
    case 'unified':
      return unifiedProperties(step.key, step.value);
  }
}

const NAMES: Readonly<Record<string, string>> = {
  'memory.max': 'MemoryMax',
  'memory.high': 'MemoryHigh',
  'memory.low': 'MemoryLow',
  'memory.min': 'MemoryMin',
  'memory.swap.max': 'MemorySwapMax',
  'memory.zswap.max': 'MemoryZSwapMax',
  'cpu.weight': 'CPUWeight',
  'pids.max': 'TasksMax',
};

function one(file: string, value: bigint): ReturnType<typeof propertiesOf> {
  const name = NAMES[file];
  return name === undefined ? undefined : { file, properties: [{ name, value }] };
}

/** Returns a quota per second, rounded up to whole percents like runc and kubelet. The file gets the exact one. */
function quotaProperties({ quota, period }: CpuMax): readonly UnitProperty[] {
  return [
    { name: 'CPUQuotaPerSecUSec', value: quota === 'max' ? UNSET : BigInt(perSecond({ quota, period })) },
    { name: 'CPUQuotaPeriodUSec', value: BigInt(period) },
  ];
}

const perSecond = ({ quota, period }: { quota: number; period: number }): number =>
  Math.ceil((quota * SECOND) / period / PERCENT) * PERCENT;

function unifiedProperties(key: string, value: string): ReturnType<typeof propertiesOf> {
  const text = value.trim();
  const set = SETS[key];
  if (set !== undefined) {
    const bits = bitsOf(text);
    return bits === undefined ? undefined : { file: key, properties: [{ name: set, value: bits }] };
  }
  if (key === 'cpu.max') {
    const [, quota, period = String(DEFAULT_CPU_PERIOD)] = /^(max|\d{1,15})(?: (\d{1,15}))?$/.exec(text) ?? [];
    if (quota === undefined || Number(period) === 0) return undefined;
    const limit = quota === 'max' ? quota : microseconds(Number(quota));
    return { file: key, properties: quotaProperties({ quota: limit, period: microseconds(Number(period)) }) };
  }
  const number = text === 'max' ? UNSET : sizeInBytes(text);
  return number === undefined || number > UNSET ? undefined : one(key, number);
}

/** Whether a unit's property has the requested value. An unset period is the default period. */
export function isSameProperty(asked: UnitProperty, found: bigint | undefined): boolean {
  if (found === asked.value) return true;
  return asked.name === 'CPUQuotaPeriodUSec' && found === UNSET && asked.value === BigInt(DEFAULT_CPU_PERIOD);
}

/**
 * Whether `found` is the quota `asked` rounded to whole percents of a CPU: systemd writes it when any property of the
 * unit changes. False for a cgroup that is not a unit.
 */
export function isRoundedInUnit(cgroup: CgroupPath, asked: CpuMax, found: CpuMax): boolean {
  if (systemdUnitOf(cgroup) === undefined || asked.quota === 'max' || found.quota === 'max') return false;
  const { quota, period } = asked;
  const rounded = (perSecond({ quota, period }) * period) / SECOND;
  return found.period === period && Math.abs(found.quota - rounded) < 1;
}
