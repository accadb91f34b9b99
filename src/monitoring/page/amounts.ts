import type { Bytes, CpuMax, Limit } from '../../core/quantities/index.ts';
import { formatCpuMax } from '../../resize/index.ts';

const units = [
  ['GiB', 2 ** 30],
  ['MiB', 2 ** 20],
  ['KiB', 2 ** 10],
] as const;

/** Formats bytes with one decimal: `12.3 MiB`. */
export function sizeText(limit: Limit<Bytes> | number): string {
  if (limit === 'max') return 'no limit';
  const [unit, size] = units.find(([, least]) => limit >= least) ?? ['B', 1];
  const amount = limit / size;
  return `${Number.isInteger(amount) ? amount : amount.toFixed(1)} ${unit}`;
}

/** Formats CPUs as in Kubernetes: `500m`, `2`. */
export const cpuText = (cpu: CpuMax): string => (cpu.quota === 'max' ? 'no limit' : formatCpuMax(cpu));

/** `1.2 ms`, `3.4 s` */
export const durationText = (ms: number): string =>
  ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(1)} s`;
