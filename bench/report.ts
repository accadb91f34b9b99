import { judge, type Verdict } from './bars.ts';
import type { SideResult } from './calls/load.ts';
import type { Measurement } from './calls/measure.ts';
import { sideNames } from './calls/sides.ts';
import type { Results } from './run.ts';
import type { WorkResult } from './work/index.ts';

const headings = ['call', 'client', 'in flight', 'side', 'p50 us', 'p99 us', 'calls/s', 'CPU us', 'p50', 'calls/s'];
/** Columns with text are left-aligned, and columns with numbers right-aligned. */
const words = new Set([0, 1, 3]);

const workHeadings = ['work', 'p50', 'p99', ''];
const workWords = new Set([0, 3]);

const barHeadings = ['limit of', '', 'this run', '', ''];
const barWords = new Set([0, 1, 3, 4]);

/** Returns the results as tables. The last two columns of calls are multiples of direct. */
export function table(results: Results): string {
  const { measurements, workResults } = results;
  const verdicts = judge(results);
  const parts = [
    ...(measurements.length === 0 ? [] : [aligned([headings, ...measurements.flatMap(callRows)], words)]),
    ...(workResults.length === 0 ? [] : [aligned([workHeadings, ...workResults.map(workRow)], workWords)]),
    ...(verdicts.length === 0 ? [] : [aligned([barHeadings, ...verdicts.map(verdictRow)], barWords)]),
  ];
  return parts.map((lines) => `${lines.join('\n')}\n`).join('\n');
}

/** Returns the results as one JSON object. */
export function json(results: Results): string {
  const { versions, measurements, workResults } = results;
  return `${JSON.stringify({ versions, calls: measurements, works: workResults, limits: judge(results) }, null, 2)}\n`;
}

function callRows({ op, client, inFlight, sides }: Measurement): string[][] {
  return sideNames.flatMap((name) => {
    const side = sides[name];
    if (side === undefined) return [];
    const first = name === 'direct' ? [op, client, String(inFlight)] : ['', '', ''];
    return [[...first, name, ...numbersOf(side), ...ratiosOf(side, sides.direct)]];
  });
}

const numbersOf = ({ p50us, p99us, rps, cpuUs }: SideResult): string[] => [
  p50us.toFixed(0),
  p99us.toFixed(0),
  rps.toFixed(0),
  cpuUs?.toFixed(1) ?? '',
];

const ratiosOf = (side: SideResult, direct: SideResult): string[] =>
  side === direct ? [] : [(side.p50us / direct.p50us).toFixed(2), (side.rps / direct.rps).toFixed(2)];

function workRow({ work, unit, p50, p99, on }: WorkResult): string[] {
  return [on === undefined ? work : `${work} (${on})`, p50.toFixed(2), p99?.toFixed(2) ?? '', unit];
}

const verdictRow = ({ name, unit, limit, figure, isMet }: Verdict): string[] => [
  name,
  limit,
  figure.toFixed(2),
  unit,
  isMet ? 'met' : 'NOT MET',
];

/** Aligns columns in `text` to the left, and columns of numbers to the right. */
function aligned(rows: readonly (readonly string[])[], text: ReadonlySet<number>): string[] {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) => (text.has(column) ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}
