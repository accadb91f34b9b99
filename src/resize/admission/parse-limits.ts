import { MIN_MEMORY_LIMIT, UNLIMITED_MEMORY, assertCpuMax, cpuMaxOfCri, memoryMaxOfCri } from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { LinuxContainerResources, Messages } from '../../runtime/index.ts';
import {
  type Bytes,
  type CpuMax,
  type Limit,
  type Microseconds,
  bytes,
  microseconds,
} from '../../core/quantities/index.ts';
import type { Limits } from '../../sandbox/index.ts';

/**
 * What a CRI resources message asks for. 0 or absent keeps what is set, -1 removes a limit; a `unified` key wins over
 * the field that it doubles, as it does in the runtimes, which write it last.
 */

/**
 * The limits that `resources` asks for, seen from `current` (a quota without a period takes the one that is set, and
 * the other way round). Throws INVALID_ARGUMENT, with the field and the value, for what has no meaning.
 */
export function parseLimits(resources: LinuxContainerResources, current: CpuMax): Limits {
  const memory = unifiedMemory(resources) ?? fieldMemory(resources);
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

function fieldMemory({ memory_limit_in_bytes: asked }: LinuxContainerResources): Limit<Bytes> | undefined {
  const limit = memoryMaxOfCri(asked);
  return limit === undefined ? undefined : atLeastPage(limit, 'memory_limit_in_bytes', String(asked));
}

/** As the kernel reads memory.max: `max`, or a number with memparse()'s suffix of one letter, powers of 1024. */
function unifiedMemory({ unified }: LinuxContainerResources): Limit<Bytes> | undefined {
  const value = unified['memory.max'];
  if (value === undefined) return undefined;
  const field = 'unified["memory.max"]';
  const trimmed = value.trim();
  if (trimmed === 'max') return 'max';
  // A leading 0 would be octal to the kernel.
  const [, digits, suffix = ''] = /^(0|[1-9][0-9]{0,19})([kmgtpe]?)$/i.exec(trimmed) ?? [];
  if (digits === undefined) throw invalid(field, value, 'not a number and not "max"');
  const size = BigInt(digits) * 1024n ** BigInt(suffix === '' ? 0 : 'kmgtpe'.indexOf(suffix.toLowerCase()) + 1);
  // memparse() shifts, and loses what 64 bits do not hold: 16e would be nothing at all.
  if (size >= 2n ** 64n) throw invalid(field, value, 'more than the kernel can read');
  if (size >= UNLIMITED_MEMORY) return 'max';
  if (size > BigInt(Number.MAX_SAFE_INTEGER)) throw invalid(field, value, 'more than any node has');
  return atLeastPage(bytes(Number(size)), field, value);
}

function atLeastPage(limit: Limit<Bytes>, field: string, value: string): Limit<Bytes> {
  if (limit === 'max' || limit >= MIN_MEMORY_LIMIT) return limit;
  throw invalid(field, value, `less than a page of memory, ${MIN_MEMORY_LIMIT} bytes`);
}

/** As the kernel reads cpu.max: a quota or `max`, and a period; the one that is set where there is none. No suffixes. */
function unifiedCpu({ unified }: LinuxContainerResources, current: CpuMax): CpuMax | undefined {
  const value = unified['cpu.max'];
  if (value === undefined) return undefined;
  const field = 'unified["cpu.max"]';
  const [quota = '', period, ...rest] = value.trim().split(/\s+/);
  if (rest.length > 0) throw invalid(field, value, 'cpu.max is "quota period"');
  const wanted: CpuMax = {
    quota: quota === 'max' ? 'max' : cpuTime(quota, field, value),
    period: period === undefined ? current.period : cpuTime(period, field, value),
  };
  assertCpuMax(wanted);
  return wanted;
}

function cpuTime(text: string, field: string, value: string): Microseconds {
  if (!/^[0-9]{1,15}$/.test(text)) throw invalid(field, value, 'a quota is "max" or a number, a period a number');
  return microseconds(Number(text));
}

/** INVALID_VALUE with the field, and the value cut to what a person reads. */
export function invalid(field: string, value: string, why: string): ShimError {
  const asked = value.length > 64 ? `${value.slice(0, 64)}...` : value;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, `${field}: ${JSON.stringify(asked)}: ${why}`, {
    asked,
  });
}
