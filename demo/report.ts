import { MiB } from '../src/core/quantities/sizes.ts';
/** The result of the demo, which `--json` prints too. Sizes in bytes, times in milliseconds. */
export interface DemoReport {
  readonly before: Snapshot;
  readonly after: Snapshot;
  readonly steps: readonly ReportedStep[];
  /** Containers that were restarted, or whose first process changed. */
  readonly restarts: number;
  readonly oomKills: number;
}

export interface Snapshot {
  readonly podMemoryMax: number | 'max';
  readonly podCpuMax: string;
  readonly containers: Readonly<Record<string, ContainerSnapshot>>;
  readonly volume: { readonly name: string; readonly size: number; readonly used: number };
}

export interface ContainerSnapshot {
  readonly memoryMax: number | 'max';
  readonly cpuMax: string;
  /** As ContainerStatus reports them through the shim. */
  readonly status: { readonly memoryLimit: number; readonly cpuQuota: number; readonly cpuShares: number };
  readonly pid: number;
}

export interface ReportedStep {
  readonly step: string;
  readonly atMs: number;
  readonly ms: number;
}

/** Formats the report as text. */
export function renderReport({ before, after, steps, restarts, oomKills }: DemoReport): string {
  const rows: [string, string, string][] = [
    ['', 'before', 'after'],
    ['pod limit: memory', size(before.podMemoryMax), size(after.podMemoryMax)],
    ['pod limit: cpu', cpu(before.podCpuMax), cpu(after.podCpuMax)],
  ];
  for (const [name, container] of Object.entries(before.containers)) {
    const now = after.containers[name];
    if (now === undefined) continue;
    rows.push(
      [`${name}: memory limit`, size(container.memoryMax), size(now.memoryMax)],
      [`${name}: cpu limit`, cpu(container.cpuMax), cpu(now.cpuMax)],
      [`${name}: ContainerStatus`, status(container), status(now)],
      [`${name}: pid`, String(container.pid), String(now.pid)],
    );
  }
  rows.push(
    [`volume ${before.volume.name}: size`, size(before.volume.size), size(after.volume.size)],
    [`volume ${before.volume.name}: used`, size(before.volume.used), size(after.volume.used)],
  );
  const lines = [...table(rows), '', 'steps of the resize', ...steps.map(stepLine)];
  return [...lines, '', `restarts: ${restarts}, OOM kills: ${oomKills}`, ''].join('\n');
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

const stepLine = ({ step, atMs, ms }: ReportedStep): string =>
  `  at ${atMs.toFixed(1).padStart(8)} ms, took ${ms.toFixed(1).padStart(8)} ms: ${readable(step)}`;

/** Formats the sizes of a step, which are bytes as in the kernel. */
const readable = (step: string): string =>
  step.replace(/\b\d{6,}\b/g, (digits) => (step.includes('cpu') ? digits : size(Number(digits))));

const status = ({ status: { memoryLimit, cpuQuota, cpuShares } }: ContainerSnapshot): string =>
  `${size(memoryLimit)}, quota ${cpuQuota}, shares ${cpuShares}`;

const size = (bytes: number | 'max'): string => (bytes === 'max' ? 'max' : `${round(bytes / MiB)} MiB`);
const round = (value: number): number => Math.round(value * 10) / 10;

function cpu(max: string): string {
  const [quota = '', period = ''] = max.split(' ');
  return quota === 'max' ? 'max' : `${round((1000 * Number(quota)) / Number(period))}m`;
}
