import { markdownTable } from '../../runner/results-reporter.ts';
import type { Side } from '../table/row.ts';
import { scenarios } from './scenarios.ts';

/** The result of one pod, in milliseconds since the updater's patch. */
export interface PodResult {
  readonly end: 'in place' | 'evicted' | 'neither' | 'not patched';
  /** Time until the end, in milliseconds. */
  readonly ms: number;
  readonly kills: number;
  /** Time until the event that reports a deferred decrease, in milliseconds; undefined without such an event. */
  readonly deferredMs?: number;
}

/** The pods of all runs, or the reason why a run failed. */
export interface ScenarioResult {
  readonly scenario: string;
  /** Interval of the updater's rounds, in seconds. */
  readonly interval: number;
  readonly runs: number;
  readonly pods: readonly PodResult[];
  readonly errors: readonly string[];
}

/** A result in figures. Times are in seconds. */
export interface Summary {
  readonly pods: number;
  readonly evictions: number;
  readonly kills: number;
  /** Pods that were neither resized nor evicted in time. */
  readonly pending: number;
  readonly median: number | undefined;
  readonly max: number | undefined;
  /** Events that report a deferred decrease. */
  readonly deferred: number;
  readonly latestEvent: number | undefined;
}

export function summaryOf({ pods }: ScenarioResult): Summary {
  const times = pods.filter(({ end }) => end === 'in place').map(({ ms }) => ms / 1000);
  const events = pods.flatMap(({ deferredMs }) => (deferredMs === undefined ? [] : [deferredMs / 1000]));
  return {
    pods: pods.length,
    evictions: pods.filter(({ end }) => end === 'evicted').length,
    kills: pods.reduce((sum, { kills }) => sum + kills, 0),
    pending: pods.filter(({ end }) => end === 'neither' || end === 'not patched').length,
    median: median(times),
    max: times.length === 0 ? undefined : Math.max(...times),
    deferred: events.length,
    latestEvent: events.length === 0 ? undefined : Math.max(...events),
  };
}

/** Returns the middle value, or the mean of the two middle ones; undefined without values. */
export function median(values: readonly number[]): number | undefined {
  const sorted = values.toSorted((one, other) => one - other);
  const [low, high] = [sorted[Math.floor((sorted.length - 1) / 2)], sorted[Math.floor(sorted.length / 2)]];
  return low === undefined || high === undefined ? undefined : (low + high) / 2;
}

/** The longest median of the time to in-place, in seconds. */
const MEDIAN_S = 10;
/** The longest time until an event says that a decrease does not fit, in seconds. */
const EVENT_S = 5;

/** Returns the requirements that the result through the shim does not meet. */
export function faultsOf(result: ScenarioResult, fits: boolean): string[] {
  const { pods, evictions, kills, pending, median: middle, deferred, latestEvent } = summaryOf(result);
  if (pods === 0) return [...result.errors, 'no pod was resized'];
  const missed = (is: boolean, text: string): string[] => (is ? [text] : []);
  if (!fits)
    return [
      ...result.errors,
      ...missed(deferred < pods, `${pods - deferred} of ${pods} pods have no event MemoryDecreaseDeferred`),
      ...missed(
        (latestEvent ?? 0) > EVENT_S,
        `an event after ${latestEvent?.toFixed(1)} s: expected within ${EVENT_S} s`,
      ),
    ];
  return [
    ...result.errors,
    ...missed(evictions > 0, `${evictions} of ${pods} pods were evicted`),
    ...missed(kills > 0, `${kills} OOM kills`),
    ...missed(pending > 0, `${pending} of ${pods} pods were not resized in time`),
    ...missed((middle ?? 0) >= MEDIAN_S, `median ${middle?.toFixed(1)} s: expected less than ${MEDIAN_S} s`),
  ];
}

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
