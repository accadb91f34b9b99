import { type Verdict, judge, judgeResource, judgeWork } from './bars.ts';
import type { Measurement, Resources } from './measure.ts';
import type { Results } from './run.ts';
import type { WorkResult } from './work/index.ts';

const headings = [
  ['call', 'in', 'direct', '', '', 'shim', '', '', '', 'shim / direct', '', ''],
  ['', 'flight', 'p50 us', 'p99 us', 'calls/s', 'p50 us', 'p99 us', 'calls/s', 'CPU us', 'p50', 'calls/s', 'bar'],
];
/** Columns with text are left-aligned, and columns with numbers right-aligned. */
const words = new Set([0, 11]);

const workHeadings = ['work', 'p50', 'p99', '', 'bar'];
const workWords = new Set([0, 3, 4]);

/** Returns the results as a table. */
export function table({ measurements, resources, workResults }: Results): string {
  const parts = [
    ...(measurements.length === 0 ? [] : [aligned([...headings, ...measurements.map(callRow)], words)]),
    ...(resources === undefined ? [] : [resourceLines(resources)]),
    ...(workResults.length === 0 ? [] : [aligned([workHeadings, ...workResults.map(workRow)], workWords)]),
  ];
  return parts.map((lines) => `${lines.join('\n')}\n`).join('\n');
}

/** Returns the results as one JSON array. */
export function json({ measurements, resources, workResults }: Results): string {
  return `${JSON.stringify([...measurements, ...workResults, ...(resources === undefined ? [] : [resources])], null, 2)}\n`;
}

function callRow(measurement: Measurement): string[] {
  const { op, inFlight, direct, shim, ratio, rpsRatio } = measurement;
  const numbers = [inFlight, direct.p50us, direct.p99us, direct.rps, shim.p50us, shim.p99us, shim.rps, shim.cpuUs];
  const ratios = [ratio.toFixed(2), rpsRatio.toFixed(2)];
  const places = [0, 0, 0, 0, 0, 0, 0, 1];
  return [op, ...numbers.map((value, index) => value.toFixed(places[index])), ...ratios, textOf(judge(measurement))];
}

function resourceLines({ rssMB, rssAtEndMB, startMs }: Resources): string[] {
  return [
    `memory under load  ${rssMB.toFixed(1)} MB   ${textOf(judgeResource('rssMB', rssMB))}`,
    `with handled calls ${rssAtEndMB.toFixed(1)} MB`,
    `first answer       ${startMs.toFixed(0)} ms   ${textOf(judgeResource('startMs', startMs))}`,
  ];
}

function workRow(result: WorkResult): string[] {
  const { work, unit, p50, p99, on } = result;
  return [
    on === undefined ? work : `${work} (${on})`,
    p50.toFixed(2),
    p99?.toFixed(2) ?? '',
    unit,
    textOf(judgeWork(result)),
  ];
}

export function allBarsMet({ measurements, resources, workResults }: Results): boolean {
  const ofResources =
    resources === undefined
      ? []
      : [judgeResource('rssMB', resources.rssMB), judgeResource('startMs', resources.startMs)];
  const verdicts = [...measurements.map(judge), ...ofResources, ...workResults.map(judgeWork)];
  return verdicts.every((verdict) => verdict?.met !== false);
}

const textOf = (verdict: Verdict | undefined): string => verdict?.text ?? '';

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
