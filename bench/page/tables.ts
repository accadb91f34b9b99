import { markdownTable } from '../../test/runner/results-reporter.ts';
import { judge, type Verdict } from '../bars.ts';
import type { SideResult } from '../calls/load.ts';
import type { Measurement } from '../calls/measure.ts';
import type { SideName } from '../calls/sides.ts';
import type { Results } from '../run.ts';
import type { WorkResult } from '../work/index.ts';

/** The tables of docs/performance.md, in Markdown. */

/** A word for a cell without a figure, such as those of the typed proxy without Go. */
const NOT_MEASURED = 'not measured';
const MANY = 16;

const whole = (value: number): string => Math.round(value).toLocaleString('en-US');
const times = (p50us: number): string => (p50us < 1000 ? p50us.toFixed(0) : `${(p50us / 1000).toFixed(1)} ms`);
/** Results vary from run to run, so two significant digits are enough. */
const figure = (value: number): string =>
  value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : whole(value);

const others: readonly (readonly [side: SideName, heading: string])[] = [
  ['relay', 'byte relay'],
  ['peer', 'typed Go proxy'],
  ['shim', 'shim'],
];

/** Calls with one in flight: median and 99th percentile in microseconds, and the median as a multiple of direct. */
export function latencyTable(measurements: readonly Measurement[]): string {
  const cell = (side: SideResult | undefined, direct: SideResult): string => {
    if (side === undefined) return NOT_MEASURED;
    const ratio = side === direct ? '' : ` (${(side.p50us / direct.p50us).toFixed(2)})`;
    return `${times(side.p50us)} / ${times(side.p99us)}${ratio}`;
  };
  return callTable(
    measurements.filter(({ inFlight }) => inFlight !== MANY),
    cell,
    ({ sides }) => (sides.shim.cpuUs === null ? '' : figure(sides.shim.cpuUs)),
    ['CPU time of the shim, us'],
  );
}

/** Calls with 16 in flight: calls per second, their ratio to direct, and median and 99th percentile. */
export function throughputTable(measurements: readonly Measurement[]): string {
  const cell = (side: SideResult | undefined, direct: SideResult): string => {
    if (side === undefined) return NOT_MEASURED;
    const ratio = side === direct ? '' : ` (${(side.rps / direct.rps).toFixed(2)})`;
    return `${whole(side.rps)}/s${ratio}; ${times(side.p50us)} / ${times(side.p99us)}`;
  };
  return callTable(
    measurements.filter(({ inFlight }) => inFlight === MANY),
    cell,
  );
}

function callTable(
  measurements: readonly Measurement[],
  cell: (side: SideResult | undefined, direct: SideResult) => string,
  last?: (measurement: Measurement) => string,
  lastHeading: readonly string[] = [],
): string {
  const rows = measurements.map((measurement) => {
    const { op, client, sides } = measurement;
    const cells = others.map(([name]) => cell(sides[name], sides.direct));
    return [op, client, cell(sides.direct, sides.direct), ...cells, ...(last === undefined ? [] : [last(measurement)])];
  });
  const head = ['call', 'client', 'direct', ...others.map(([, heading]) => heading), ...lastHeading];
  return markdownTable([head, ...rows]);
}

const MEMORY = /^(.+), (anonymous )?memory (when idle|under load)$/;
const isMemory = ({ work }: WorkResult): boolean => MEMORY.test(work);
const isGrowth = ({ work }: WorkResult): boolean => work.startsWith('Growth, ');

/** Memory of each process in MB, idle and under load. */
export function memoryTable(results: readonly WorkResult[]): string {
  const names = [...new Set(results.flatMap(({ work }) => MEMORY.exec(work)?.[1] ?? []))];
  const columns = [
    'memory when idle',
    'anonymous memory when idle',
    'memory under load',
    'anonymous memory under load',
  ];
  const rows = names.map((name) => [
    name,
    ...columns.map((column) => {
      const found = results.find(({ work }) => work === `${name}, ${column}`);
      return found === undefined ? '' : found.p50.toFixed(1);
    }),
  ]);
  return markdownTable([['MB (2^20 bytes)', 'idle', 'of it anonymous', 'under load', 'of it anonymous'], ...rows]);
}

/** All other works, with their parts. */
export function workTable(results: readonly WorkResult[]): string {
  const rows = results
    .filter((result) => !isMemory(result) && !isGrowth(result))
    .map(({ work, unit, p50, p99, on, samples }) => [
      work.startsWith('  ') ? `... ${work.trim()}` : `${work}${on === undefined ? '' : ` (${on})`}`,
      `${figure(p50)} ${unit}`,
      p99 === undefined ? '' : `${figure(p99)} ${unit}`,
      whole(samples),
    ]);
  return markdownTable([['work', 'median', '99th percentile', 'samples'], ...rows]);
}

/** Figures that depend on the number of pods: a row for each figure, and a column for each number. */
export function growthTable(results: readonly WorkResult[]): string {
  const growth = results.filter(isGrowth);
  const sizes = [...new Set(growth.flatMap(({ on }) => on ?? []))];
  const names = [...new Set(growth.map(({ work }) => work))];
  const rows = names.map((name) => {
    const all = growth.filter(({ work }) => work === name);
    const unit = all[0]?.unit ?? '';
    const [single] = all.filter(({ on }) => on === undefined);
    const cells = sizes.map((size, index) => {
      const found = all.find(({ on }) => on === size) ?? (index === sizes.length - 1 ? single : undefined);
      return found === undefined ? '' : figure(found.p50);
    });
    return [name.replace('Growth, ', ''), unit, ...cells];
  });
  return markdownTable([['figure', 'unit', ...sizes], ...rows]);
}

/** Each limit of what was measured, with the figure of this run. */
export function limitTable(results: Results): string {
  const row = ({ name, limit, unit, figure: found, isMet }: Verdict): string[] => [
    name,
    `${limit} ${unit}`,
    `${figure(found)}${isMet ? '' : ': missed'}`,
  ];
  return markdownTable([['measured', 'limit', 'this run'], ...judge(results).map(row)]);
}
