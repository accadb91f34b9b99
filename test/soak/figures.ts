import { MiB } from '../../src/core/quantities/sizes.ts';

/** The figures of a soak, for its last lines. */
export interface SoakFigures {
  readonly resizes: number;
  /** Pods that were removed and made again. */
  readonly pods: number;
  readonly seconds: number;
  /** Resident memory in bytes. */
  readonly resident: Change;
  readonly descriptors: Change;
  /** The 99th percentile of the time of a resize, in milliseconds. */
  readonly p99: Change;
}

/** Returns the figures as one line. */
export function figuresText({ resizes, pods, seconds, resident, descriptors, p99 }: SoakFigures): string {
  const times = (p99.last / p99.first).toFixed(2);
  return (
    `${resizes} resizes and ${pods} replaced pods in ${seconds} s, first and last: ` +
    `${pair(resident, (bytes) => (bytes / MiB).toFixed(1))} MiB resident, ` +
    `${pair(descriptors, String)} descriptors, ${pair(p99, (ms) => ms.toFixed(0))} ms p99 (${times} times)`
  );
}

const pair = ({ first, last }: Change, text: (value: number) => string): string => `${text(first)} and ${text(last)}`;

/** The measurements of some resizes in a row. */
export interface Window {
  /** Durations of the resizes in milliseconds. */
  readonly durations: readonly number[];
  /** Resident memory at the end of the window, in bytes. */
  readonly resident: number;
  /** Open file descriptors at the end of the window. */
  readonly descriptors: number;
}

/** The number of windows at each end that are compared. */
const COMPARED = 3;
/** The first window warms up. */
const WARM_UP = 1;
/** The smallest number of windows with separate ends. */
export const LEAST_WINDOWS = WARM_UP + 2 * COMPARED;

/** Returns the percentile of numbers by the nearest rank. Throws if there are none. */
export function percentile(numbers: readonly number[], part: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  const found = sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)];
  if (found === undefined) throw new Error('no numbers');
  return found;
}

const median = (numbers: readonly number[]): number => percentile(numbers, 0.5);

/** A figure at the start of a soak, after its warm-up, and at its end: each the median of three windows. */
export interface Change {
  readonly first: number;
  readonly last: number;
}

/** Compares the ends of a soak. Throws if there are fewer than {@link LEAST_WINDOWS} windows. */
export function changeOf(windows: readonly Window[], figure: (window: Window) => number): Change {
  if (windows.length < LEAST_WINDOWS)
    throw new Error(`${windows.length} windows: at least ${LEAST_WINDOWS} are needed`);
  return {
    first: median(windows.slice(WARM_UP, WARM_UP + COMPARED).map(figure)),
    last: median(windows.slice(-COMPARED).map(figure)),
  };
}

export const p99 = ({ durations }: Window): number => percentile(durations, 0.99);
