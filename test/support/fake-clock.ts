import { type Clock, systemClock } from '../../src/core/clock.ts';

/** Where fake clocks start: far apart, so that a mix-up shows. */
export const START = { now: 5000, wallTime: 1_700_000_000_000 } as const;

/** The system clocks without timers: for tests in which no time limit may end, even if machine or disk is slow. */
export const timerlessClock: Clock = { ...systemClock, after: () => () => undefined };

/** Returns immediately from each wait and records its duration, so that tests need not know when a wait starts. */
export class FakeQuickClock implements Clock {
  readonly waits: number[] = [];
  #now = START.now;
  #wallTime = START.wallTime;

  now(): number {
    return this.#now;
  }

  wallTime(): number {
    return this.#wallTime;
  }

  after(ms: number, action: () => void): () => void {
    this.waits.push(ms);
    const due = setImmediate(() => {
      this.pass(ms);
      action();
    });
    return () => clearImmediate(due);
  }

  /** Advances the clock. */
  pass(ms: number): void {
    this.#now += ms;
    this.#wallTime += ms;
  }
}

/** Waits until a condition holds that only this process can cause. */
export async function eventually(holds: () => boolean, what: () => string = () => String(holds)): Promise<void> {
  for (const limit = Date.now() + 120_000; !holds(); ) {
    if (Date.now() > limit) throw new Error(`not within 120 s: ${what()}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
