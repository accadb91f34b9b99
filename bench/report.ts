import { type Verdict, judge, judgeResource } from './bars.ts';
import type { Measurement, Resources } from './measure.ts';

const headings = [
  ['call', 'in', 'direct', '', '', 'shim', '', '', '', 'shim / direct', '', ''],
  ['', 'flight', 'p50 us', 'p99 us', 'calls/s', 'p50 us', 'p99 us', 'calls/s', 'CPU us', 'p50', 'calls/s', 'bar'],
];
/** Columns of words; the others are numbers, and stand to the right. */
const words = new Set([0, 11]);

/** The result as people read it. */
export function table(measurements: readonly Measurement[], resources: Resources): string {
  const rows = measurements.map((measurement) => {
    const { op, inFlight, direct, shim, ratio, rpsRatio } = measurement;
    const numbers = [inFlight, direct.p50us, direct.p99us, direct.rps, shim.p50us, shim.p99us, shim.rps, shim.cpuUs];
    const ratios = [ratio.toFixed(2), rpsRatio.toFixed(2)];
    const places = [0, 0, 0, 0, 0, 0, 0, 1];
    return [op, ...numbers.map((value, index) => value.toFixed(places[index])), ...ratios, textOf(judge(measurement))];
  });
  const { rssMB, rssAtEndMB, startMs } = resources;
  return [
    ...aligned([...headings, ...rows]),
    '',
    `memory under load  ${rssMB.toFixed(1)} MB   ${textOf(judgeResource('rssMB', rssMB))}`,
    `with handled calls ${rssAtEndMB.toFixed(1)} MB`,
    `first answer       ${startMs.toFixed(0)} ms   ${textOf(judgeResource('startMs', startMs))}`,
    '',
  ].join('\n');
}

export function allBarsMet(measurements: readonly Measurement[], { rssMB, startMs }: Resources): boolean {
  const verdicts = [...measurements.map(judge), judgeResource('rssMB', rssMB), judgeResource('startMs', startMs)];
  return verdicts.every((verdict) => verdict?.met !== false);
}

const textOf = (verdict: Verdict | undefined): string => verdict?.text ?? '';

function aligned(rows: readonly (readonly string[])[]): string[] {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) =>
        words.has(column) ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd(),
  );
}
