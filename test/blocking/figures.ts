import { markdownTable } from '../runner/results-reporter.ts';
import { percentile } from '../soak/figures.ts';
import type { Recorded, Row } from './preload/recorder.ts';

/** The measurements of the shim's process, before and after its start has ended. */
export interface Measured {
  readonly start: Recorded;
  readonly service: Recorded;
}

/** Durations in milliseconds. */
export interface Figures {
  readonly calls: number;
  readonly median: number;
  /** The 99.9th percentile. */
  readonly p999: number;
  readonly longest: number;
}

/** Returns the figures of durations in milliseconds. Throws if there are none. */
export const figuresOf = (durations: readonly number[]): Figures => ({
  calls: durations.length,
  median: percentile(durations, 0.5),
  p999: percentile(durations, 0.999),
  longest: percentile(durations, 1),
});

const HEAD = ['what', 'when', 'system calls', 'number', 'median', '99.9th percentile', 'longest'];

const ms = (value: number): string => `${value.toFixed(3)} ms`;
const cells = ({ calls, median, p999, longest }: Figures): string[] => [
  String(calls),
  ms(median),
  ms(p999),
  ms(longest),
];
const slowestFirst = (a: Row, b: Row): number => figuresOf(b.durations).p999 - figuresOf(a.durations).p999;

/** Returns the durations of all calls of a phase. */
export const durationsOf = ({ rows }: Recorded): number[] => rows.flatMap(({ durations }) => durations);

/** Returns a phase as a Markdown table, the slowest calls first. */
export function tableText(recorded: Recorded): string {
  const rows = recorded.rows
    .toSorted(slowestFirst)
    .map(({ calls, what, when, durations }) => [what, when, calls.join(', '), ...cells(figuresOf(durations))]);
  const all = ['all', '', '', ...cells(figuresOf(durationsOf(recorded)))];
  return markdownTable([HEAD, ...rows, all]);
}
