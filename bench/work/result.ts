import { percentile, rounded } from '../statistics.ts';

/** What the shim does by itself. There is no direct way to compare it with: it is measured in time. */
export interface WorkResult {
  /** What was measured: the work itself, or a part of it, which is told for information. */
  readonly work: string;
  /** `times`: a multiple of something. */
  readonly unit: 'us' | 'ms' | 'MB' | 'times';
  readonly p50: number;
  /** Not of a few. */
  readonly p99?: number;
  readonly samples: number;
  /** Where it depends on that: what it ran on. */
  readonly on?: string;
}

/** Of fewer, the 99th percentile is the slowest one, and says nothing. */
const LEAST_FOR_P99 = 100;

export function resultOf(work: string, unit: WorkResult['unit'], values: readonly number[]): WorkResult {
  const sorted = values.toSorted((a, b) => a - b);
  const p50 = rounded(percentile(sorted, 0.5), 3);
  const samples = values.length;
  return samples < LEAST_FOR_P99
    ? { work, unit, p50, samples }
    : { work, unit, p50, p99: rounded(percentile(sorted, 0.99), 3), samples };
}
