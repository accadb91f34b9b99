import {
  assertCpuMax,
  cpuMaxOfCri,
  MIN_MEMORY_LIMIT,
  memoryMaxOfCri,
  sizeInBytes,
  UNLIMITED_MEMORY,
} from '../../cgroups/index.ts';
import {
  type Bytes,
  bytes,
  type CpuMax,
  invalidValue,
  type Limit,
  type Microseconds,
  microseconds,
} from '../../core/index.ts';
import type { LinuxContainerResources, Messages } from '../../runtime/index.ts';
import type { Limits } from '../pods/pod-state.ts';

/**
 * Returns the limits that a CRI resources message sets. 0 or an absent field keeps a value, -1 removes a limit. A
 * `unified` key wins over its field, as in the runtimes, which write it last. A quota without a period uses the period
 * of `current`, and vice versa. Throws INVALID_ARGUMENT, with the field and the value, for an invalid value.
 */
export function parseLimits(resources: LinuxContainerResources, current: CpuMax): Limits {
  const memory = unifiedMemory(resources) ?? fieldMemory(resources);
  const cpu = unifiedCpu(resources, current) ?? cpuMaxOfCri(resources.cpu_quota, resources.cpu_period, current);
  return { ...(memory === undefined ? {} : { memory }), ...(cpu === undefined ? {} : { cpu }) };
}

/** Whether a request may change a memory or CPU limit. A cpuset-only update, for example, does not. */
export const touchesLimits = (resources: LinuxContainerResources): boolean =>
  touchesMemory(resources) || touchesCpu(resources);

/** Whether a request may change a memory limit. */
export const touchesMemory = ({ memory_limit_in_bytes: limit, unified }: LinuxContainerResources): boolean =>
  limit !== 0n || 'memory.max' in unified;

/** Whether a request may change a CPU limit. */
export const touchesCpu = ({ cpu_quota, cpu_period, unified }: LinuxContainerResources): boolean =>
  cpu_quota !== 0n || cpu_period !== 0n || 'cpu.max' in unified;

/** Returns the fields that a request sets, one per map key. A later request that sets them all supersedes it. */
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

function fieldMemory({ memory_limit_in_bytes: asked }: LinuxContainerResources): Limit<Bytes> | undefined {
  const limit = memoryMaxOfCri(asked);
  return limit === undefined ? undefined : atLeastPage(limit, 'memory_limit_in_bytes', String(asked));
}

/** Kernel cgroup-v2 reads memory.max as `max`, or as a number with memparse()'s one-letter suffix, a power of 1024. */
function unifiedMemory({ unified }: LinuxContainerResources): Limit<Bytes> | undefined {
  const value = unified['memory.max'];
  if (value === undefined) return undefined;
  const field = 'unified["memory.max"]';
  const trimmed = value.trim();
  if (trimmed === 'max') return 'max';
  const size = sizeInBytes(trimmed);
  if (size === undefined) throw invalidValue(field, value, 'not a number and not "max"');
  // memparse() shifts and drops bits above 64: it reads 16e as 0.
  if (size >= 2n ** 64n) throw invalidValue(field, value, 'more than the kernel can read');
  if (size >= UNLIMITED_MEMORY) return 'max';
  if (size > BigInt(Number.MAX_SAFE_INTEGER)) throw invalidValue(field, value, 'more than any node has');
  return atLeastPage(bytes(Number(size)), field, value);
}

function atLeastPage(limit: Limit<Bytes>, field: string, value: string): Limit<Bytes> {
  if (limit === 'max' || limit >= MIN_MEMORY_LIMIT) return limit;
  throw invalidValue(field, value, `less than a page of memory, ${MIN_MEMORY_LIMIT} bytes`);
}

/** Kernel cgroup-v2 reads cpu.max as a quota or `max`, then an optional period, without suffixes. */
function unifiedCpu({ unified }: LinuxContainerResources, current: CpuMax): CpuMax | undefined {
  const value = unified['cpu.max'];
  if (value === undefined) return undefined;
  const field = 'unified["cpu.max"]';
  const [quota = '', period, ...rest] = value.trim().split(/\s+/);
  if (rest.length > 0) throw invalidValue(field, value, 'cpu.max is "quota period"');
  const wanted: CpuMax = {
    quota: quota === 'max' ? 'max' : cpuTime(quota, field, value),
    period: period === undefined ? current.period : cpuTime(period, field, value),
  };
  assertCpuMax(wanted);
  return wanted;
}

function cpuTime(text: string, field: string, value: string): Microseconds {
  if (!/^[0-9]{1,15}$/.test(text)) throw invalidValue(field, value, 'a quota is "max" or a number, a period a number');
  return microseconds(Number(text));
}
