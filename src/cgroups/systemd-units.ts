/**
 * systemd's units: which cgroup is which unit's, and what a cgroup's settings are called as properties of one
 * (systemd.resource-control(5), org.freedesktop.systemd1(5)). Pure.
 */
import { posix } from 'node:path';
import { type CpuMax, microseconds } from '../core/quantities/index.ts';
import { DEFAULT_CPU_PERIOD } from './cpu.ts';
import type { CgroupPath } from './file.ts';
import { sizeInBytes } from './unified.ts';
import type { CgroupWrite } from './write.ts';

/** A property that is one unsigned 64-bit number (D-Bus' `t`): all that a limit is made of. */
export interface UnitProperty {
  readonly name: string;
  readonly value: bigint;
}

/** How systemd writes "no limit" and "not set": UINT64_MAX. */
export const UNSET = 2n ** 64n - 1n;

/** What systemd keeps of a quota over a reload, in all its versions: whole percents of a processor, in microseconds in a second. */
const PERCENT = 10_000;
const SECOND = 1_000_000;

/** The unit whose cgroup this is by its name: a slice (a pod) or a scope (a container). Undefined for other names. */
export function systemdUnitOf(cgroup: CgroupPath): string | undefined {
  const name = posix.basename(cgroup);
  return /.\.(slice|scope)$/.test(name) ? name : undefined;
}

/** Whether a cgroup is a unit's by its name. */
export const isSystemdUnit = (cgroup: CgroupPath): boolean => systemdUnitOf(cgroup) !== undefined;

/** The unit's D-Bus interface, which has these properties. */
export const dbusInterfaceOf = (unit: string): string =>
  `org.freedesktop.systemd1.${unit.endsWith('.slice') ? 'Slice' : 'Scope'}`;

/** The unit's D-Bus object: all but letters and digits as `_` and their hexadecimal code, a digit in front as well. */
export function dbusObjectOf(unit: string): string {
  const name = [...Buffer.from(unit)].map((byte, at) => {
    const character = String.fromCharCode(byte);
    const plain = at === 0 ? /[a-z]/i : /[a-z0-9]/i;
    return plain.test(character) ? character : `_${byte.toString(16).padStart(2, '0')}`;
  });
  return `/org/freedesktop/systemd1/unit/${name.join('')}`;
}

/**
 * The cgroup file of a write, and the properties that stand for it; undefined where systemd has none: then it is the file
 * alone that changes.
 *
 * memory.high as the shim itself lowers it for a while (reclaim.ts) is the file's alone too, on purpose: a unit keeps what its owner
 * wants. Should the shim die, systemd itself puts the owner's value back when it next writes the unit's settings.
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

/** A quota as systemd has it: in a second, in whole percents, rounded up as runc and kubelet round it. The file gets it as asked. */
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
  if (key === 'cpu.max') {
    const [, quota, period = String(DEFAULT_CPU_PERIOD)] = /^(max|\d{1,15})(?: (\d{1,15}))?$/.exec(text) ?? [];
    if (quota === undefined || Number(period) === 0) return undefined;
    const limit = quota === 'max' ? quota : microseconds(Number(quota));
    return { file: key, properties: quotaProperties({ quota: limit, period: microseconds(Number(period)) }) };
  }
  const number = text === 'max' ? UNSET : sizeInBytes(text);
  return number === undefined ? undefined : one(key, number);
}

/** Whether a unit has a property as it was asked for. A period that is not set is the default one. */
export function isSameProperty(asked: UnitProperty, found: bigint | undefined): boolean {
  if (found === asked.value) return true;
  return asked.name === 'CPUQuotaPeriodUSec' && found === UNSET && asked.value === BigInt(DEFAULT_CPU_PERIOD);
}

/**
 * Whether `found` is what systemd makes of a limit when it writes the settings of a unit again, as it does whenever anybody
 * changes any of them: a quota in whole percents of a processor. False for a cgroup that is no unit's.
 */
export function isRoundedInUnit(cgroup: CgroupPath, asked: CpuMax, found: CpuMax): boolean {
  if (systemdUnitOf(cgroup) === undefined || asked.quota === 'max' || found.quota === 'max') return false;
  const { quota, period } = asked;
  const rounded = (perSecond({ quota, period }) * period) / SECOND;
  return found.period === period && Math.abs(found.quota - rounded) < 1;
}
