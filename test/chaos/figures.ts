import type { Call } from './load.ts';

/** The figures of a run of faults, for its last lines. */
export interface ChaosFigures {
  readonly rounds: number;
  readonly faults: number;
  readonly seconds: number;
  readonly resizes: CallCounts;
  /** Calls that are forwarded. */
  readonly passed: CallCounts;
  /** The most resident memory of the shim after a round, in megabytes. */
  readonly megabytes: number;
}

export interface CallCounts {
  readonly all: number;
  readonly failed: number;
}

/** Counts rounds, calls and memory of a run. */
export class ChaosCounter {
  readonly #started = performance.now();
  readonly #faults = new Set<string>();
  readonly #calls = { resize: { all: 0, failed: 0 }, passed: { all: 0, failed: 0 } };
  #rounds = 0;
  #megabytes = 0;

  add(fault: string, calls: readonly Call[], megabytes: number): void {
    this.#rounds += 1;
    this.#faults.add(fault);
    for (const { kind, code } of calls) {
      this.#calls[kind].all += 1;
      if (code !== 0) this.#calls[kind].failed += 1;
    }
    this.#megabytes = Math.max(this.#megabytes, megabytes);
  }

  get figures(): ChaosFigures {
    const { resize: resizes, passed } = this.#calls;
    const seconds = Math.round((performance.now() - this.#started) / 1000);
    const [rounds, faults, megabytes] = [this.#rounds, this.#faults.size, Math.ceil(this.#megabytes)];
    return { rounds, faults, seconds, resizes, passed, megabytes };
  }
}

/** Returns the figures as one line. */
export function figuresText({ rounds, faults, seconds, resizes, passed, megabytes }: ChaosFigures): string {
  const counts = (what: string, { all, failed }: CallCounts): string => `${all} ${what} (${failed} failed)`;
  return (
    `${rounds} rounds of ${faults} faults in ${seconds} s: ${counts('resizes', resizes)}, ` +
    `${counts('forwarded calls', passed)}, at most ${megabytes} MB resident after a round`
  );
}
