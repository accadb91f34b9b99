import { type Clock, systemClock } from '../../src/core/clock.ts';

/** Where fake clocks start: far apart, so that a mix-up shows. */
export const START = { now: 5000, wallTime: 1_700_000_000_000 } as const;

/** The system clocks without timers: for tests in which no time limit may end, even if machine or disk is slow. */
export const timerlessClock: Clock = { ...systemClock, after: () => () => undefined };

interface Timer {
  readonly at: number;
  readonly action: () => void;
}

/** A clock whose time passes only when a test says so: {@link pass}, {@link elapse} and {@link until}. */
export class FakeClock implements Clock {
  /** The duration of each wait, in order of their starts. */
  readonly waits: number[] = [];
  readonly #endsWaits: boolean;
  #passed = 0;
  #systemTime = START.wallTime;
  /** Timers, sorted by time and then by creation. */
  readonly #timers: Timer[] = [];

  /** With `endsWaits`, each wait ends at once and the clock advances by it: tests need not know when a wait starts. */
  constructor({ endsWaits = false } = {}) {
    this.#endsWaits = endsWaits;
  }

  now(): number {
    return START.now + this.#passed;
  }

  wallTime(): number {
    return this.#systemTime + this.#passed;
  }

  /** Milliseconds since the creation of the clock. */
  get passed(): number {
    return this.#passed;
  }

  /** Milliseconds to the next timer. */
  get next(): number | undefined {
    const [first] = this.#timers;
    return first === undefined ? undefined : first.at - this.#passed;
  }

  after(ms: number, action: () => void): () => void {
    this.waits.push(ms);
    if (this.#endsWaits) {
      const due = setImmediate(() => {
        this.pass(ms);
        action();
      });
      return () => clearImmediate(due);
    }
    const timer = { at: this.#passed + ms, action };
    this.#timers.splice(this.#timers.findLastIndex(({ at }) => at <= timer.at) + 1, 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer);
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** Changes the system's time, as an NTP step does. Timers do not fire. */
  setSystemTime(by: number): void {
    this.#systemTime += by;
  }

  /** Advances the clock and fires the due timers, except those that their actions start. Returns their number. */
  pass(ms: number): number {
    const end = this.#passed + ms;
    const fired = this.#timers.filter(({ at }) => at <= end).filter((timer) => this.#fire(timer));
    this.#passed = end;
    return fired.length;
  }

  /** Lets an amount of time pass, with all work that its timers start. */
  async elapse(ms: number): Promise<void> {
    let isOver = false;
    this.after(ms, () => (isOver = true));
    await this.until(() => isOver, ms);
  }

  /** Waits until {@link elapse} or {@link until} has let the time pass. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.after(ms, resolve));
  }

  /**
   * Jumps to the next timer whenever no work is left, until the condition holds: hours pass within seconds. For code
   * that only waits for this clock and does no input or output. Rejects after `limitMs`, or if no timer is left.
   */
  async until(holds: () => boolean, limitMs: number): Promise<void> {
    const limit = this.#passed + limitMs;
    for (;;) {
      // The work that the last timer has started runs to its next wait.
      await new Promise((resolve) => setImmediate(resolve));
      if (holds()) return;
      const [timer] = this.#timers;
      if (timer === undefined) throw new Error('no timer is left to wait for');
      if (timer.at > limit) throw new Error(`not within ${limitMs / 1000} s: ${String(holds)}`);
      this.#fire(timer);
    }
  }

  /** Fires a timer at its time, unless it was canceled. */
  #fire(timer: Timer): boolean {
    const index = this.#timers.indexOf(timer);
    if (index < 0) return false;
    this.#timers.splice(index, 1);
    this.#passed = Math.max(this.#passed, timer.at);
    timer.action();
    return true;
  }
}

/** Waits until a condition holds that only this process can cause. */
export async function eventually(holds: () => boolean, what: () => string = () => String(holds)): Promise<void> {
  for (const limit = Date.now() + 120_000; !holds(); ) {
    if (Date.now() > limit) throw new Error(`not within 120 s: ${what()}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
