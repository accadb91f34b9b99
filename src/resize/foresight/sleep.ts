import type { Clock } from '../../core/concurrency/index.ts';

/** Waits that can be ended early. For one caller at a time. */
export class Sleep {
  readonly #clock: Clock;
  #isAwake = false;
  #end: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether {@link wake} has been called since the last {@link reset}. */
  get isAwake(): boolean {
    return this.#isAwake;
  }

  reset(): void {
    this.#isAwake = false;
  }

  /** Ends the present wait, or the next one. */
  wake(): void {
    this.#isAwake = true;
    this.#end();
  }

  /** Waits for this many milliseconds, or until {@link wake} is called. Infinity: only until then. */
  async for(ms: number): Promise<void> {
    if (this.#isAwake || ms === 0) return;
    let stop = (): void => undefined;
    await new Promise<void>((resolve) => {
      this.#end = resolve;
      if (Number.isFinite(ms)) stop = this.#clock.after(ms, resolve);
    });
    stop();
    this.#end = () => undefined;
  }
}
