/** Call durations in microseconds, stored without an object for each. */
export class Samples {
  #values = new Float64Array(4096);
  #count = 0;

  get count(): number {
    return this.#count;
  }

  add(value: number): void {
    if (this.#count === this.#values.length) {
      const larger = new Float64Array(2 * this.#values.length);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#count] = value;
    this.#count += 1;
  }

  /** Returns the values so far in ascending order. */
  sorted(): Float64Array {
    return this.#values.slice(0, this.#count).sort();
  }
}

/**
 * Returns the smallest value that at least this share of all values does not exceed (nearest rank).
 * @param sorted ascending; throws RangeError if empty
 * @param share 0 < share <= 1: 0.5 is the median
 */
export function percentile(sorted: ArrayLike<number>, share: number): number {
  const value = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  if (value === undefined) throw new RangeError('no values for a percentile');
  return value;
}

/** Throws RangeError without values. */
export function median(values: readonly number[]): number {
  return percentile(
    values.toSorted((a, b) => a - b),
    0.5,
  );
}

/** Rounds to this many decimals, for reports. */
export function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
