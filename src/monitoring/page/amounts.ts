import { type Bytes, type CpuMax, type Limit, roundedSizeWithUnit } from '../../core/quantities/index.ts';
import { formatCpuLimit } from '../../resize/index.ts';

/** Formats a limit in bytes: `12.3 MiB`, `no limit`. */
export const sizeText = (limit: Limit<Bytes> | number): string =>
  limit === 'max' ? 'no limit' : roundedSizeWithUnit(limit);

/** Formats CPUs as in Kubernetes: `500m`, `2`. */
export const cpuText = (cpu: CpuMax): string => (cpu.quota === 'max' ? 'no limit' : formatCpuLimit(cpu));
