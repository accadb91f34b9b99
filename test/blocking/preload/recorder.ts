import type { Place } from './places.ts';

/** The durations of the calls for one subject, in milliseconds. */
export interface Row extends Place {
  /** The functions of node:fs without `Sync`, or `call`, in the order of their first use. */
  readonly calls: readonly string[];
  readonly durations: readonly number[];
}

export interface Recorded {
  readonly rows: readonly Row[];
  /** Calls that match no place: the call and the path. */
  readonly unknown: readonly string[];
}

/** Maximum number of unknown calls to store, enough to find a missing place. */
const MOST_UNKNOWN = 20;

/** Collects the durations of synchronous calls by subject. */
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

  /** Returns the calls recorded since the previous call of this method, and starts a new recording. */
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
