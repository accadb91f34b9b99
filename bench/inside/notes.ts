/** The start and end of an activity, in microseconds of the machine's clock. */
export type Span = readonly [begin: number, end: number];

/** The notes of a measured shim about itself. */
export interface Notes {
  readonly fsyncs: readonly Span[];
  /** Requests to the backend, from the request to the end of the answer. */
  readonly backend: readonly Span[];
}

/** Returns how much of the time between two instants the spans cover, in microseconds. Concurrent spans count once. */
export function timeIn(spans: readonly Span[], from: number, to: number): number {
  let sum = 0;
  let until = from;
  for (const [begin, end] of [...spans].sort(([a], [b]) => a - b)) {
    const start = Math.max(begin, until);
    const stop = Math.min(end, to);
    if (stop <= start) continue;
    sum += stop - start;
    until = stop;
  }
  return sum;
}
