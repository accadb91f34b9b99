/** The result of one pod, in milliseconds since the updater's patch. */
export interface PodResult {
  readonly end: 'in place' | 'evicted' | 'neither' | 'not patched';
  /** Time until the end, in milliseconds. */
  readonly ms: number;
  readonly kills: number;
  /** When the event says that the decrease is deferred, in milliseconds; undefined without one. */
  readonly deferredMs?: number;
}

/** The pods of all runs, or why a run has failed. */
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

/** Returns what the shim misses of its bar. */
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
