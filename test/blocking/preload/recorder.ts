import type { Place } from './places.ts';

/** The durations of the calls about one thing, in milliseconds. */
export interface Row extends Place {
  /** Names in node:fs without `Sync`, or `call`; in the order of their first time. */
  readonly calls: readonly string[];
  readonly durations: readonly number[];
}

export interface Recorded {
  readonly rows: readonly Row[];
  /** Calls about something that no place names: the call and the path. */
  readonly unknown: readonly string[];
}

/** Enough to find a place that is missing. */
const MOST_UNKNOWN = 20;

/** Collects the durations of synchronous calls by what they are about. */
export class Recorder {
  #rows = new Map<string, { readonly calls: Set<string>; readonly place: Place; readonly durations: number[] }>();
  #unknown = new Set<string>();

  add(call: string, place: Place | undefined, path: string, ms: number): void {
    if (place === undefined) {
      if (this.#unknown.size < MOST_UNKNOWN) this.#unknown.add(`${call} ${path}`);
      return;
    }
    let row = this.#rows.get(place.what);
    if (row === undefined) this.#rows.set(place.what, (row = { calls: new Set(), place, durations: [] }));
    row.calls.add(call);
    row.durations.push(ms);
  }

  /** Returns what was recorded since the last call, and begins again. */
  take(): Recorded {
    const rows = [...this.#rows.values()].map(({ calls, place, durations }) => ({
      calls: [...calls],
      ...place,
      durations,
    }));
    const recorded = { rows, unknown: [...this.#unknown] };
    this.#rows = new Map();
    this.#unknown = new Set();
    return recorded;
  }
}
