import type { Clock } from '../../src/core/concurrency/clock.ts';

/** Returns immediately from each wait and records its duration, so that tests need not know when a wait starts. */
export class QuickClock implements Clock {
  readonly waits: number[] = [];
  #now = 1_700_000_000_000;

  now(): number {
    return this.#now;
  }

  after(ms: number, action: () => void): () => void {
    this.waits.push(ms);
    const due = setImmediate(() => {
      this.#now += ms;
      action();
    });
    return () => clearImmediate(due);
  }

  /** Advances the clock. */
  pass(ms: number): void {
    this.#now += ms;
  }
}

/** Waits until a condition holds that only this process can bring about. */
export async function eventually(holds: () => boolean, what: () => string = () => String(holds)): Promise<void> {
  for (const limit = Date.now() + 20_000; !holds(); ) {
    if (Date.now() > limit) throw new Error(`not within 20 s: ${what()}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
