import type { Bytes, CpuMax, CpuWeight, Limit } from '../../core/quantities/index.ts';
import { assertCpuMax, assertCpuWeight, formatCpuMax, isSameCpuMax, parseCpuMax, parseCpuWeight } from './cpu.ts';
import { type MemoryLimitFile, formatLimit, isSameLimit, parseLimit } from './memory.ts';
import { assertUnifiedKey } from './unified.ts';

/** A write of one value to one cgroup file. */
export type CgroupWrite =
  | { readonly file: MemoryLimitFile; readonly value: Limit<Bytes> }
  | { readonly file: 'cpu.max'; readonly value: CpuMax }
  | { readonly file: 'cpu.weight'; readonly value: CpuWeight }
  | { readonly file: 'unified'; readonly key: string; readonly value: string };

/** Whether a write raises a memory limit: the kernel then only sets a variable, without reclaim. */
export function raisesLimit(step: CgroupWrite, before: string): boolean {
  if (step.file !== 'memory.max' && step.file !== 'memory.high') return false;
  const now = parseLimit(before, step.file);
  return now !== 'max' && (step.value === 'max' || step.value > now);
}

interface EncodedWrite {
  readonly file: string;
  readonly text: string;
  readonly isThere: (found: string) => boolean;
}

/** Returns the text of a write, and how to tell that the file has its value. Throws INVALID_VALUE for an invalid value. */
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
