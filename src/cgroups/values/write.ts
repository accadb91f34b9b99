import type { Bytes, CpuMax, CpuWeight, Limit } from '../../core/quantities/numbers.ts';
import {
  assertCpuMax,
  assertCpuWeight,
  formatCpuMax,
  formatLimit,
  isSameCpuMax,
  isSameLimit,
  type MemoryLimitFile,
  parseCpuMax,
  parseCpuWeight,
  parseLimit,
} from './controller-files.ts';
import { assertUnifiedKey } from './unified.ts';

/** A write of one value to one cgroup file. */
export type CgroupWrite =
  | { readonly file: MemoryLimitFile; readonly value: Limit<Bytes> }
  | { readonly file: 'cpu.max'; readonly value: CpuMax }
  | { readonly file: 'cpu.weight'; readonly value: CpuWeight }
  | { readonly file: 'unified'; readonly key: string; readonly value: string };

/**
 * Whether the kernel only sets variables for a write: for a weight, a raised memory limit, and, unless `reclaims`, a
 * lowered memory limit.
 * @param reclaims whether a write that lowers a memory limit reclaims before it returns; see CgroupFiles.write
 */
export function isQuickWrite(step: CgroupWrite, before: string, reclaims: boolean): boolean {
  if (step.file === 'cpu.weight') return true;
  if (step.file !== 'memory.max' && step.file !== 'memory.high') return false;
  const now = parseLimit(before, step.file);
  return !reclaims || (now !== 'max' && (step.value === 'max' || step.value > now));
}

interface EncodedWrite {
  readonly file: string;
  readonly text: string;
  readonly isThere: (found: string) => boolean;
}

/** Returns a write's text, and a check whether the file has its value. Throws INVALID_VALUE for an invalid value. */
export function encodeWrite(step: CgroupWrite, pageSize: Bytes): EncodedWrite {
  switch (step.file) {
    case 'cpu.max':
      assertCpuMax(step.value);
      return {
        file: step.file,
        text: formatCpuMax(step.value),
        isThere: (found) => isSameCpuMax(parseCpuMax(found), step.value),
      };
    case 'cpu.weight':
      assertCpuWeight(step.value);
      return { file: step.file, text: String(step.value), isThere: (found) => parseCpuWeight(found) === step.value };
    case 'unified':
      assertUnifiedKey(step.key, step.value);
      // An empty write does not reach the kernel. An empty line clears a setting (cpuset.cpus).
      return { file: step.key, text: step.value === '' ? '\n' : step.value, isThere: (found) => found === step.value };
    case 'memory.max':
    case 'memory.high':
    case 'memory.low':
    case 'memory.min':
    case 'memory.swap.max':
      return {
        file: step.file,
        text: formatLimit(step.value),
        isThere: (found) => isSameLimit(step.value, parseLimit(found, step.file), pageSize),
      };
  }
}
