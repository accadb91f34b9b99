import { type ScenarioResult, summaryOf } from './result.ts';
import { markdownTable } from '../../runner/page-table.ts';
import type { Side } from '../table/row.ts';
import { scenarios } from './scenarios.ts';

export type Results = Readonly<Record<Side, readonly ScenarioResult[]>>;

const columns = [
  'scenario',
  'rounds',
  'path',
  'runs',
  'pods',
  'evicted',
  'OOM kills',
  'in place: median',
  'max',
  'event',
];

/** Returns the results as a Markdown table: for each scenario and interval a line for each side. */
export function tableText(results: Results, intervals: readonly number[]): string {
  const rows = scenarios.flatMap(({ name, title }) =>
    intervals.flatMap((interval) =>
      (['direct', 'shim'] as const).flatMap((side) => {
        const result = results[side].find((one) => one.scenario === name && one.interval === interval);
        return result === undefined ? [] : [[title, `${interval} s`, side, ...figures(result)]];
      }),
    ),
  );
  return markdownTable([columns, ...rows]);
}

function figures(result: ScenarioResult): string[] {
  const { pods, evictions, kills, pending, median, max, latestEvent } = summaryOf(result);
  const late = pending === 0 ? '' : ` (${pending} pending)`;
  return [
    String(result.runs),
    `${pods}${late}`,
    String(evictions),
    String(kills),
    seconds(median),
    seconds(max),
    seconds(latestEvent),
  ];
}

const seconds = (value: number | undefined): string => (value === undefined ? '-' : `${value.toFixed(1)} s`);
