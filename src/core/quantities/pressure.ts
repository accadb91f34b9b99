/** How close a pod is to its limits: one figure to sort pods by. */

/** The readings of a pod or of one of its containers. Undefined: not known. */
export interface LoadFigures {
  /** Bytes that cannot be reclaimed. */
  readonly unreclaimable: number | undefined;
  /** The memory limit in bytes. */
  readonly limit: number | 'max';
  /** Percent of the last 10 s in which a task waited for memory. */
  readonly memoryStalled: number | undefined;
  /** Percent of the last 10 s in which a task waited for CPU. */
  readonly cpuStalled: number | undefined;
}

/** A volume: bytes that it stores, and its size. */
export interface VolumeFigures {
  readonly used: number;
  readonly size: number;
}

/**
 * Returns the pressure in percent: the largest of the share of the memory limit that cannot be reclaimed, and of the
 * shares of time in which tasks waited for memory or CPU. Page cache does not count, because the kernel reclaims it
 * first. 0 if nothing is known.
 */
export const pressureOf = ({ unreclaimable = 0, limit, memoryStalled = 0, cpuStalled = 0 }: LoadFigures): number =>
  Math.max(shareOf(unreclaimable, limit), memoryStalled, cpuStalled);

/** Returns a whole pod's pressure in percent: the largest of its own, its containers' and its volumes' fill. */
export const podPressure = (all: readonly LoadFigures[], volumes: readonly VolumeFigures[]): number =>
  Math.max(0, ...all.map(pressureOf), ...volumes.map(({ used, size }) => shareOf(used, size)));

/** Returns an amount as percent of a limit; 0 without a limit. */
export const shareOf = (used: number, limit: number | 'max'): number =>
  limit === 'max' || limit === 0 ? 0 : (used / limit) * 100;

/** Returns the volume that is filled most; undefined if there is none. */
export const fullestOf = <Volume extends VolumeFigures>(volumes: readonly Volume[]): Volume | undefined =>
  volumes.toSorted((one, other) => shareOf(other.used, other.size) - shareOf(one.used, one.size))[0];
