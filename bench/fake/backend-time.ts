/**
 * How long calls have been with the backend, calls side by side counted once: from the arrival of a request's bytes to the
 * going of its answer's. Told what happens at the edge of the process; by whatever clock, of which it gives the unit.
 */
export class BackendTime {
  /** Calls that have come and are not answered. */
  #open = 0;
  #total = 0;
  #arrival = 0;
  #since: number | undefined;
  #until: number | undefined;
  /** Something has come since the answer: what goes from now on belongs to that. */
  #over = true;

  /** Bytes have come: of a request, perhaps, whose call then begins. */
  arrived(now: number): void {
    this.#arrival = now;
    if (this.#open === 0) this.#over = true;
  }

  /** A call is looked at. It came with the last bytes. */
  begin(): void {
    if (this.#open === 0) {
      this.#close();
      this.#since = this.#arrival;
      this.#over = false;
    }
    this.#open += 1;
  }

  /** What is to be answered is known; it goes with the bytes that follow. */
  answered(): void {
    this.#open -= 1;
  }

  /** Bytes have gone. */
  left(now: number): void {
    if (this.#open === 0 && !this.#over) this.#until = now;
  }

  /** Of all calls whose answers have gone. */
  get total(): number {
    if (this.#open === 0) this.#close();
    return this.#total;
  }

  #close(): void {
    // Without an end of its own, the next one has come before the answer went: it ends where that begins.
    if (this.#since !== undefined) this.#total += (this.#until ?? this.#arrival) - this.#since;
    this.#since = undefined;
    this.#until = undefined;
  }
}
