import { median, percentile } from '../statistics.ts';

/** Durations of the calls of one replay, in microseconds, in the order of the recording. */
export type Durations = ArrayLike<number>;

export interface Comparison {
  /** The time that the shim adds to a call, in microseconds: percentiles of all calls. */
  readonly addedP50: number;
  readonly addedP99: number;
  readonly addedMost: number;
  /** The position of the call to which the shim adds the most. */
  readonly slowest: number;
  readonly direct: Latency;
  readonly shim: Latency;
}

/** Figures of all calls of all replays, in microseconds. */
export interface Latency {
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
}

/**
 * Compares each call with itself: the median of its replays through the shim with the median of its direct ones. Other
 * work on the machine delays single calls of single replays on both sides.
 * @throws RangeError without replays or calls
 */
export function compare(direct: readonly Durations[], shim: readonly Durations[]): Comparison {
  const calls = direct[0]?.length ?? 0;
  const added = Float64Array.from({ length: calls }, (_, call) => medianOf(shim, call) - medianOf(direct, call));
  const sorted = added.toSorted();
  const addedMost = percentile(sorted, 1);
  return {
    addedP50: percentile(sorted, 0.5),
    addedP99: percentile(sorted, 0.99),
    addedMost,
    slowest: added.indexOf(addedMost),
    direct: latencyOf(direct),
    shim: latencyOf(shim),
  };
}

const medianOf = (replays: readonly Durations[], call: number): number =>
  median(
    replays.map((durations) => {
      const duration = durations[call];
      if (duration === undefined) throw new RangeError(`a replay has no call ${call}`);
      return duration;
    }),
  );

function latencyOf(replays: readonly Durations[]): Latency {
  const sorted = Float64Array.from(replays.flatMap((durations) => Array.from(durations))).sort();
  return { p50: percentile(sorted, 0.5), p99: percentile(sorted, 0.99), most: percentile(sorted, 1) };
}

/** A CPU time, and the time that a fixed piece of work took meanwhile (yardstick.ts), in milliseconds. */
export interface CpuTime {
  readonly cpuMs: number;
  readonly yardstickMs: number;
}

/** Returns the CPU time of the shim as a multiple of containerd's, as if both had the same processor. */
export function cpuShare(shim: CpuTime, containerd: CpuTime): number {
  const units = ({ cpuMs, yardstickMs }: CpuTime): number => cpuMs / yardstickMs;
  if (!(units(containerd) > 0)) throw new RangeError('the recording has no CPU time of containerd');
  return units(shim) / units(containerd);
}
