import type { Clock } from '../../core/index.ts';

/** Delays of the first and of later attempts, in ms: a starting containerd is asked soon, then less often. */
const FIRST_MS = 100;
const LONGEST_MS = 5000;

/**
 * Runs the recovery at each connection to the backend, and repeats it until it succeeds: a containerd that has just
 * started accepts connections before it can list its pods ("server is not initialized yet", 1.6 and 1.7).
 */
export class Recovery {
  /** The number of connections. Each has its own recovery, which ends the attempts for earlier connections. */
  #connection = 0;
  #stopTimer: () => void = () => undefined;
  /** Whether an attempt runs or is scheduled. */
  #isPending = false;
  /** Number of requested attempts. */
  #asked = 0;
  #isClosed = false;

  /** @param recover returns whether it succeeded; never rejects */
  constructor(
    private readonly recover: () => Promise<boolean>,
    private readonly clock: Clock,
  ) {}

  /** Starts the recovery for a new connection. Resolves after the first attempt. */
  begin(): Promise<void> {
    this.#stopTimer();
    this.#connection += 1;
    return this.#try(this.#connection, FIRST_MS);
  }

  /**
   * Schedules an attempt, unless one is scheduled: a transaction could not end, for example because the disk of the
   * journal was full, or its record could be read only after the start. A request for its pod recovers the pod earlier.
   */
  retry(): void {
    this.#asked += 1;
    if (this.#isPending || this.#isClosed) return;
    this.#schedule(this.#connection, LONGEST_MS);
  }

  /** Stops all attempts. */
  close(): void {
    this.#isClosed = true;
    this.#connection += 1;
    this.#stopTimer();
  }

  async #try(connection: number, delay: number): Promise<void> {
    this.#isPending = true;
    const asked = this.#asked;
    const isDone = await this.recover();
    if (connection !== this.#connection) return;
    if (!isDone) this.#schedule(connection, delay);
    // The attempt may already have passed the pod for which another attempt was requested meanwhile.
    else if (this.#asked !== asked) this.#schedule(connection, LONGEST_MS);
    else this.#isPending = false;
  }

  #schedule(connection: number, delay: number): void {
    this.#isPending = true;
    const longer = Math.min(delay * 2, LONGEST_MS);
    this.#stopTimer = this.clock.after(delay, () => void this.#try(connection, longer));
  }
}
