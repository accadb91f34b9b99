/**
 * Delay from the last update of a pod to the growth of its volumes, in milliseconds, when the pod limit stays looser
 * than its containers need.
 */
export const GROW_DELAY_MS = 2000;

/** Delay until a resize of volumes that has failed is tried again, in milliseconds. */
export const RETRY_DELAY_MS = 30_000;

/**
 * The timers of pods whose volumes grow when no more updates come (KEP-6030: volumes grow after the memory limits), or
 * are resized again after a failure.
 */
export class GrowthTimers {
  /** By sandbox id. */
  readonly #timers = new Map<string, NodeJS.Timeout>();

  /** Calls `resize` in `delayMs`; replaces the pod's timer. Does not keep the process alive. */
  restart(sandboxId: string, resize: () => void, delayMs: number = GROW_DELAY_MS): void {
    this.stop(sandboxId);
    const timer = setTimeout(() => {
      this.#timers.delete(sandboxId);
      resize();
    }, delayMs);
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
