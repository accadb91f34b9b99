import type { Bytes, CpuMax, CpuWeight, Limit } from '../core/quantities/index.ts';
import type { MemoryLimitFile } from './memory.ts';

/** A write of one value to one cgroup file. */
export type CgroupWrite =
  | { readonly file: MemoryLimitFile; readonly value: Limit<Bytes> }
  | { readonly file: 'cpu.max'; readonly value: CpuMax }
  | { readonly file: 'cpu.weight'; readonly value: CpuWeight }
  | { readonly file: 'unified'; readonly key: string; readonly value: string };
