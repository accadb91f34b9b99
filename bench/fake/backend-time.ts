/**
 * Measures how long calls are with the backend, with concurrent calls counted once: from the arrival of a request's
 * bytes until its answer's bytes have been written. Its caller reports events at the edge of the process. The unit is
 * that of the caller's clock.
 */
export class BackendTime {
  /** Number of calls that are not answered yet. */
  #open = 0;
  #total = 0;
  #arrival = 0;
  #since: number | undefined;
  #until: number | undefined;
  /** Whether bytes have arrived since the last answer was ready. If so, bytes that leave now belong to a new call. */
  #over = true;

  /** Bytes arrived that may belong to a request. */
  arrived(now: number): void {
    this.#arrival = now;
    if (this.#open === 0) this.#over = true;
  }

  /** A call starts. It arrived with the last bytes. */
  begin(): void {
    if (this.#open === 0) {
      this.#close();
      this.#since = this.#arrival;
      this.#over = false;
    }
    this.#open += 1;
  }

  /** An answer is ready. It leaves with the bytes that follow. */
  answered(): void {
    this.#open -= 1;
  }

  /** Bytes left the process. */
  left(now: number): void {
    if (this.#open === 0 && !this.#over) this.#until = now;
  }

  /** The time of all calls whose answers have left. */
  get total(): number {
    if (this.#open === 0) this.#close();
    return this.#total;
  }

  #close(): void {
    // If the answer has not left before the next call arrived, the time ends where that call starts.
    if (this.#since !== undefined) this.#total += (this.#until ?? this.#arrival) - this.#since;
    this.#since = undefined;
    this.#until = undefined;
  }
}
