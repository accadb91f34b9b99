/** The cost of starting a call in addition to the bytes of its request. */
export const CALL_COST = 1024;
/** Total cost of the calls that start in one event loop turn after the first one: about 30 usual calls. */
export const STARTS_COST = 32_768;

/** A connection with completely received calls that wait to be started. */
export interface WaitingCalls {
  /** Bytes of the request that starts next; undefined if none starts now. */
  readonly nextBytes: number | undefined;
  /** Starts that call. Must not throw. */
  startNext(): void;
}

/**
 * Spreads the starts of handled calls over turns of the event loop: a handler decodes its request at once, which takes
 * long for a long one. One call starts in each turn, however long its request is, and more of them if all are short.
 * Connections take turns.
 */
export class CallStarts {
  readonly #waiting = new Set<WaitingCalls>();
  #used = 0;
  #turn: NodeJS.Immediate | undefined;

  /** Whether a call of this many bytes may start in this turn, before those that wait. If so, counts it. */
  take(bytes: number): boolean {
    return this.#waiting.size === 0 && this.#use(bytes);
  }

  /** Starts the connection's calls in later turns, until it has none to start. */
  wait(calls: WaitingCalls): void {
    this.#waiting.add(calls);
    this.#turn ??= setImmediate(() => this.#run());
  }

  #use(bytes: number): boolean {
    const cost = CALL_COST + bytes;
    if (this.#used > 0 && this.#used + cost > STARTS_COST) return false;
    this.#used += cost;
    this.#turn ??= setImmediate(() => this.#run());
    return true;
  }

  #run(): void {
    this.#turn = undefined;
    this.#used = 0;
    for (const calls of this.#waiting) {
      const bytes = calls.nextBytes;
      if (bytes !== undefined && !this.#use(bytes)) break;
      this.#waiting.delete(calls);
      if (bytes === undefined) continue;
      // Behind the other connections: the loop reaches it again.
      this.#waiting.add(calls);
      calls.startNext();
    }
  }
}
