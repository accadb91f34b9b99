import { MiB } from '../../src/core/quantities/sizes.ts';
import type { Change } from './windows.ts';

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
