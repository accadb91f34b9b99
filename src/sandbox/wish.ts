import { cpuMaxOfCri, memoryMaxOfCri } from '../cgroups/index.ts';
import { Code, Reason, ShimError } from '../errors/index.ts';
import type { LinuxContainerResources, Messages } from '../runtime/index.ts';
import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../units/index.ts';

/**
 * What a CRI resources message asks for. 0 or absent keeps what is set, -1 removes a limit; a `unified` key wins over
 * the field that it doubles, as it does in the runtimes, which write it last.
 */

/** The limits that a request sets. Absent: not asked for. */
export interface WantedLimits {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
}

/**
 * The limits that `resources` asks for, seen from `current` (a quota without a period takes the one that is set, and
 * the other way round). Throws INVALID_ARGUMENT, with the field and the value, for what has no meaning.
 */
export function wantedLimits(resources: LinuxContainerResources, current: CpuMax): WantedLimits {
  const memory = unifiedMemory(resources) ?? memoryMaxOfCri(resources.memory_limit_in_bytes);
  const cpu = unifiedCpu(resources, current) ?? cpuMaxOfCri(resources.cpu_quota, resources.cpu_period, current);
  return { ...(memory === undefined ? {} : { memory }), ...(cpu === undefined ? {} : { cpu }) };
}

/** Whether a request could change a memory or CPU limit at all. cpuset-only updates, say, do not. */
export function touchesLimits(resources: LinuxContainerResources): boolean {
  return (
    resources.memory_limit_in_bytes !== 0n ||
    resources.cpu_quota !== 0n ||
    resources.cpu_period !== 0n ||
    'memory.max' in resources.unified ||
    'cpu.max' in resources.unified
  );
}

/** The fields that a request sets, each key of a map by itself: one that sets as many can take its place. */
export function fieldsSet({ linux, windows, annotations }: Request): ReadonlySet<string> {
  const set = new Set<string>(Object.keys(annotations).map((key) => `annotations ${key}`));
  if (windows !== null) set.add('windows');
  if (linux === null) return set;
  const { unified, hugepage_limits, ...fields } = linux;
  for (const [name, value] of Object.entries(fields)) if (value !== 0n && value !== '') set.add(name);
  for (const key of Object.keys(unified)) set.add(`unified ${key}`);
  for (const { page_size } of hugepage_limits) set.add(`hugepage_limits ${page_size}`);
  return set;
}

type Request = Messages['UpdateContainerResourcesRequest'];

function unifiedMemory({ unified }: LinuxContainerResources): Limit<Bytes> | undefined {
  const value = unified['memory.max'];
  return value === undefined ? undefined : kernelLimit(value, 'unified["memory.max"]', bytes);
}

function unifiedCpu({ unified }: LinuxContainerResources, current: CpuMax): CpuMax | undefined {
  const value = unified['cpu.max'];
  if (value === undefined) return undefined;
  const field = 'unified["cpu.max"]';
  const [quota = '', period, ...rest] = value.trim().split(/\s+/);
  if (rest.length > 0) throw invalid(field, value, 'cpu.max is "quota period"');
  const wantedPeriod = period === undefined ? current.period : kernelLimit(period, field, microseconds);
  if (wantedPeriod === 'max') throw invalid(field, value, 'a period has to be a number');
  return { quota: kernelLimit(quota, field, microseconds), period: wantedPeriod };
}

/** A value as the kernel's files take it: `max`, or a number with memparse()'s suffix of one letter, powers of 1024. */
function kernelLimit<Unit extends number>(value: string, field: string, unit: (value: number) => Unit): Limit<Unit> {
  const trimmed = value.trim();
  if (trimmed === 'max') return 'max';
  const [, digits, suffix = ''] = /^([0-9]{1,19})([kmgtpe]?)$/i.exec(trimmed) ?? [];
  if (digits === undefined) throw invalid(field, value, 'not a number and not "max"');
  const number = Number(digits) * 1024 ** (suffix === '' ? 0 : 'kmgtpe'.indexOf(suffix.toLowerCase()) + 1);
  // More than any machine has: the kernel takes it as no limit, or as good as none.
  return Number.isSafeInteger(number) ? unit(number) : 'max';
}

function invalid(field: string, value: string, why: string): ShimError {
  const asked = value.length > 64 ? `${value.slice(0, 64)}...` : value;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, `${field}: ${JSON.stringify(asked)}: ${why}`, {
    asked,
  });
}
