import { performance } from 'node:perf_hooks';

/** Milliseconds of one turn of the event loop for work that was put off. */
export const TURN_MS = 2;

/**
 * Connections that have more to read than one turn of the event loop allows. They take turns; in between, the event
 * loop serves connections that need little.
 */
export class Turns {
  readonly #waiting = new Set<() => void>();
  #turn: NodeJS.Immediate | undefined;

  /** Runs an action in a later turn of the event loop. It may add itself again. */
  add(action: () => void): void {
    this.#waiting.add(action);
    this.#turn ??= setImmediate(() => this.#run());
  }

  delete(action: () => void): void {
    this.#waiting.delete(action);
  }

  #run(): void {
    const end = performance.now() + TURN_MS;
    for (const action of this.#waiting) {
      this.#waiting.delete(action);
      action();
      if (performance.now() >= end) break;
    }
    this.#turn = this.#waiting.size === 0 ? undefined : setImmediate(() => this.#run());
  }
}
