import { percentile, rounded } from '../statistics.ts';

/** Work of the shim itself. It has no direct equivalent, so the result is a time. */
export interface WorkResult {
  /** The measured work: the whole, or a part of it for information. */
  readonly work: string;
  /** `times`: a multiple of another value. */
  readonly unit: 'us' | 'ms' | 'KiB' | 'MB' | 'times';
  readonly p50: number;
  /** Absent if there are too few samples. */
  readonly p99?: number;
  readonly samples: number;
  /** The platform of the work, if the result depends on it. */
  readonly on?: string;
}

/** With fewer samples, the 99th percentile would only be the slowest sample. */
const LEAST_FOR_P99 = 100;

export function resultOf(work: string, unit: WorkResult['unit'], values: readonly number[]): WorkResult {
  const sorted = values.toSorted((a, b) => a - b);
  const p50 = rounded(percentile(sorted, 0.5), 3);
  const samples = values.length;
  return samples < LEAST_FOR_P99
    ? { work, unit, p50, samples }
    : { work, unit, p50, p99: rounded(percentile(sorted, 0.99), 3), samples };
}

/** One value for several samples. */
export const part = (work: string, unit: WorkResult['unit'], value: number, samples: number): WorkResult => ({
  work,
  unit,
  p50: rounded(value, 2),
  samples,
});
