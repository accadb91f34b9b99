/** Reads and formats the files of the CPU controller. Times are in microseconds. */
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { cpuWeight, microseconds } from '../../core/quantities/index.ts';
import type { CpuMax, CpuWeight } from '../../core/quantities/index.ts';
import { unexpectedContent } from './unexpected.ts';

/** The kernel requires a quota of at least 1 ms and a period of 1 ms to 1 s (kernel/sched/core.c, tg_set_cfs_bandwidth). */
export const MIN_CPU_QUOTA = microseconds(1000);
/** The file with the CPU time that may be saved up from earlier periods, in microseconds (kernel cgroup-v2). */
export const CPU_BURST = 'cpu.max.burst';
/** 44 bits of microseconds (kernel/sched/sched.h, MAX_BW). */
export const MAX_CPU_QUOTA = microseconds(2 ** 44 - 1);
export const MIN_CPU_PERIOD = microseconds(1000);
export const MAX_CPU_PERIOD = microseconds(1_000_000);
export const DEFAULT_CPU_PERIOD = microseconds(100_000);

export const MIN_CPU_WEIGHT = cpuWeight(1);
export const MAX_CPU_WEIGHT = cpuWeight(10_000);

/** Reads cpu.max, `<quota or max> <period>`. Throws CGROUP_UNAVAILABLE for other content. */
export function parseCpuMax(text: string): CpuMax {
  const [, quota, period] = /^(max|\d{1,15}) (\d{1,15})$/.exec(text) ?? [];
  if (quota === undefined || period === undefined) throw unexpectedContent('cpu.max', text);
  return { quota: quota === 'max' ? 'max' : microseconds(Number(quota)), period: microseconds(Number(period)) };
}

/** Formats quota and period, so that one write sets both. */
export const formatCpuMax = ({ quota, period }: CpuMax): string => `${quota} ${period}`;

/** Throws INVALID_VALUE for values that the kernel rejects. */
export function assertCpuMax({ quota, period }: CpuMax): void {
  if (period < MIN_CPU_PERIOD || period > MAX_CPU_PERIOD) {
    throw invalid('cpu.max', String(period), `the period must be ${MIN_CPU_PERIOD} to ${MAX_CPU_PERIOD} microseconds`);
  }
  if (quota !== 'max' && quota < MIN_CPU_QUOTA) {
    throw invalid('cpu.max', String(quota), `the quota must be at least ${MIN_CPU_QUOTA} microseconds`);
  }
  if (quota !== 'max' && quota > MAX_CPU_QUOTA) {
    throw invalid('cpu.max', String(quota), `the quota must be at most ${MAX_CPU_QUOTA} microseconds`);
  }
}

/** Whether quota and period are equal, also without a quota: the content of the file is the same. */
export const isSameCpuMax = (a: CpuMax, b: CpuMax): boolean => a.quota === b.quota && a.period === b.period;

/**
 * Reads cpu.weight: 1 to 10000 (kernel cgroup-v2), or on some kernels 0 if the cgroup is idle (cpu.idle = 1). Throws
 * CGROUP_UNAVAILABLE for other content.
 */
export function parseCpuWeight(text: string): CpuWeight {
  const weight = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(weight <= MAX_CPU_WEIGHT)) throw unexpectedContent('cpu.weight', text);
  return cpuWeight(weight);
}

/** Throws INVALID_VALUE for values that the kernel rejects. */
export function assertCpuWeight(weight: CpuWeight): void {
  if (weight >= MIN_CPU_WEIGHT && weight <= MAX_CPU_WEIGHT) return;
  throw invalid('cpu.weight', String(weight), `the weight must be ${MIN_CPU_WEIGHT} to ${MAX_CPU_WEIGHT}`);
}

function invalid(file: string, asked: string, why: string): ShimError {
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, `${file}: ${asked}: ${why}`, { file, asked });
}
