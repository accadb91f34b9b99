import type { Requester } from '../history/history-entry.ts';

/**
 * Delay from the last update of a pod to the growth of its volumes, in milliseconds, when the pod limit stays looser
 * than its containers need.
 */
export const GROW_DELAY_MS = 2000;

/** Delay until a resize of volumes that has failed is tried again, in milliseconds. */
export const RETRY_DELAY_MS = 30_000;

export interface TimerOptions {
  /** Default: the shim. */
  readonly requester?: Requester;
  /** In milliseconds. */
  readonly delayMs?: number;
}

/**
 * The timers of pods whose volumes grow when no more updates come (KEP-6030: volumes grow after the memory limits), or
 * are resized again after a failure.
 */
export class GrowthTimers {
  /** By sandbox id. */
  readonly #timers = new Map<string, { readonly timer: NodeJS.Timeout; requester: Requester }>();

  /**
   * Calls `resize` in `delayMs`; replaces the pod's timer, and takes over its request of a changed spec. Does not keep
   * the process alive.
   */
  restart(
    sandboxId: string,
    resize: (requester: Requester) => void,
    { requester = { kind: 'shim' }, delayMs = GROW_DELAY_MS }: TimerOptions = {},
  ): void {
    const before = this.#timers.get(sandboxId)?.requester;
    this.stop(sandboxId);
    const timer = setTimeout(() => {
      this.#timers.delete(sandboxId);
      resize(entry.requester);
    }, delayMs);
    const entry = { timer, requester: before?.kind === 'spec' ? before : requester };
    timer.unref();
    this.#timers.set(sandboxId, entry);
  }

  /** Like {@link restart}, but a running timer stays, and takes over a request of a changed spec. */
  start(sandboxId: string, resize: (requester: Requester) => void, options: Required<TimerOptions>): void {
    const running = this.#timers.get(sandboxId);
    if (running === undefined) this.restart(sandboxId, resize, options);
    else if (options.requester.kind === 'spec') running.requester = options.requester;
  }

  stop(sandboxId: string): void {
    clearTimeout(this.#timers.get(sandboxId)?.timer);
    this.#timers.delete(sandboxId);
  }

  isRunning(sandboxId: string): boolean {
    return this.#timers.has(sandboxId);
  }
}
