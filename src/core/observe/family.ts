/** Name, type, labels and help of a Prometheus metric. */
export interface Description<Labels extends readonly string[] = readonly string[]> {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly labels: Labels;
  /** One sentence: what is counted, in which unit, by which label. */
  readonly help: string;
}

/** Values of a description's labels, in the same order. */
export type LabelValues<Labels extends readonly string[]> = { readonly [Index in keyof Labels]: string };

/** The current value of a series. */
export type Series =
  | { readonly kind: 'number'; readonly labels: readonly string[]; readonly value: number }
  | ({ readonly kind: 'histogram'; readonly labels: readonly string[] } & Distribution);

export interface Distribution {
  /** For each of {@link bounds}, the number of values up to this bound and above the previous one. */
  readonly counts: readonly number[];
  readonly count: number;
  readonly sum: number;
}

/** A metric with all its series. */
export interface Family {
  readonly description: Description;
  series(): Iterable<Series>;
}

/** Upper bounds of all histogram buckets, in seconds: from an amended call's duration to a long reclaim. */
export const bounds = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30] as const;

/** Limits the number of series: any client may call any method, so label values are not always from a small set. */
const MOST_SERIES = 256;
const LONGEST_LABEL = 128;
const OTHER = 'other';

/** A series, and those with further labels. */
class Level<State> {
  readonly next = new Map<string, Level<State>>();
  state: State | undefined;
}

/** A bounded number of series, by their labels. */
class SeriesByLabels<State> {
  readonly #root = new Level<State>();
  readonly #all: { readonly labels: readonly string[]; readonly state: State }[] = [];

  constructor(private readonly create: () => State) {}

  /** Returns a series' state. Above MOST_SERIES the first label becomes `other`, above twice that all do. */
  of(labels: readonly string[]): State {
    let level: Level<State> | undefined = this.#root;
    for (const label of labels) level = level?.next.get(label);
    return level?.state ?? this.#add(labels);
  }

  all(): readonly { readonly labels: readonly string[]; readonly state: State }[] {
    return this.#all;
  }

  #add(labels: readonly string[]): State {
    const [first = '', ...rest] = labels;
    const fits = first.length <= LONGEST_LABEL && this.#all.length < MOST_SERIES;
    if (!fits && first !== OTHER) return this.of([OTHER, ...rest]);
    if (this.#all.length >= 2 * MOST_SERIES && rest.some((label) => label !== OTHER))
      return this.of(labels.map(() => OTHER));
    let level = this.#root;
    for (const label of labels) {
      const next: Level<State> = level.next.get(label) ?? new Level();
      level.next.set(label, next);
      level = next;
    }
    const state = this.create();
    level.state = state;
    this.#all.push({ labels: [...labels], state });
    return state;
  }
}

/** Counts events. Counters without labels and series in `fromStart` start at 0; others at their first event. */
export class Counter<const Labels extends readonly string[]> implements Family {
  readonly #counts = new SeriesByLabels(() => ({ value: 0 }));

  constructor(
    readonly description: Description<Labels>,
    fromStart: readonly LabelValues<Labels>[] = [],
  ) {
    if (description.labels.length === 0) this.#counts.of([]);
    for (const labels of fromStart) this.#counts.of(labels);
  }

  add(labels: LabelValues<Labels>, amount = 1): void {
    this.#counts.of(labels).value += amount;
  }

  /** The counts of all series. */
  get counts(): readonly { readonly labels: readonly string[]; readonly value: number }[] {
    return this.#counts.all().map(({ labels, state: { value } }) => ({ labels, value }));
  }

  series(): readonly Series[] {
    return this.counts.map(({ labels, value }) => ({ kind: 'number', labels, value }));
  }
}

/** Counts durations in buckets. A histogram without labels and the series in `fromStart` start at 0. */
export class Histogram<const Labels extends readonly string[]> implements Family {
  readonly #series = new SeriesByLabels(() => ({ counts: bounds.map(() => 0), count: 0, sum: 0 }));

  constructor(
    readonly description: Description<Labels>,
    fromStart: readonly LabelValues<Labels>[] = [],
  ) {
    if (description.labels.length === 0) this.#series.of([]);
    for (const labels of fromStart) this.#series.of(labels);
  }

  observe(labels: LabelValues<Labels>, seconds: number): void {
    const series = this.#series.of(labels);
    series.count += 1;
    series.sum += seconds;
    const index = bounds.findIndex((bound) => seconds <= bound);
    // A value above the last bound only adds to `count`.
    if (index >= 0) series.counts[index] = (series.counts[index] ?? 0) + 1;
  }

  /** The distributions of all series. */
  get distributions(): readonly ({ readonly labels: readonly string[] } & Distribution)[] {
    return this.#series.all().map(({ labels, state }) => ({ labels, ...state, counts: [...state.counts] }));
  }

  series(): readonly Series[] {
    return this.distributions.map((distribution) => ({ kind: 'histogram', ...distribution }));
  }
}

/** A gauge whose values are read at each scrape. */
export class Reading<const Labels extends readonly string[]> implements Family {
  constructor(
    readonly description: Description<Labels>,
    readonly read: () => readonly (readonly [labels: LabelValues<Labels>, value: number])[],
  ) {}

  series(): readonly Series[] {
    return this.read().map(([labels, value]) => ({ kind: 'number', labels, value }));
  }
}
