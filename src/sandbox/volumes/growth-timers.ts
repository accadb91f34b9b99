/**
 * Delay from the last update of a pod to the growth of its volumes, in milliseconds, when the pod limit stays looser
 * than its containers need.
 */
export const GROW_DELAY_MS = 2000;

/** The timers of pods whose volumes grow when no more updates come (KEP-6030: volumes grow after the memory limits). */
export class GrowthTimers {
  /** By sandbox id. */
  readonly #timers = new Map<string, NodeJS.Timeout>();

  /** Calls `grow` in {@link GROW_DELAY_MS}; replaces the pod's timer. Does not keep the process alive. */
  restart(sandboxId: string, grow: () => void): void {
    this.stop(sandboxId);
    const timer = setTimeout(() => {
      this.#timers.delete(sandboxId);
      grow();
    }, GROW_DELAY_MS);
    timer.unref();
    this.#timers.set(sandboxId, timer);
  }

  stop(sandboxId: string): void {
    clearTimeout(this.#timers.get(sandboxId));
    this.#timers.delete(sandboxId);
  }

  isRunning(sandboxId: string): boolean {
    return this.#timers.has(sandboxId);
  }
}
