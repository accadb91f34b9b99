import { messageOf } from '../../core/errors/index.ts';
import type { Log } from '../../observe/index.ts';
import type { ResizeRecord, ResizeStore } from './records.ts';
import { type Clock, KeyedLock } from '../../core/concurrency/index.ts';

/** A full disk may have room again. */
const RETRY_MS = 30_000;

/** Writes what is to outlive the shim: pod by pod, one write after the other, always what is true by then. */
export class RecordKeeper {
  readonly #store: ResizeStore;
  readonly #recordsOf: (podUid: string) => readonly ResizeRecord[];
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #lock = new KeyedLock();
  /** Pods whose last write failed, and the timer that tries again. */
  readonly #retries = new Map<string, () => void>();

  constructor(parts: {
    store: ResizeStore;
    recordsOf: (podUid: string) => readonly ResizeRecord[];
    clock: Clock;
    log: Log;
  }) {
    this.#store = parts.store;
    this.#recordsOf = parts.recordsOf;
    this.#clock = parts.clock;
    this.#log = parts.log;
  }

  /** Rejects as the store does. For what must not begin unless it is kept. */
  save(podUid: string): Promise<void> {
    return this.#lock.run(podUid, async () => {
      this.#stopRetry(podUid);
      await this.#store.persist(podUid, this.#recordsOf(podUid));
    });
  }

  /** Never rejects: what has happened cannot be refused any more. Tried again until it lasts. */
  async update(podUid: string): Promise<void> {
    try {
      await this.save(podUid);
    } catch (error) {
      this.#log.error({ uid: podUid, error: messageOf(error) }, 'storing resize records of a pod failed; will retry');
      this.#stopRetry(podUid);
      this.#retries.set(
        podUid,
        this.#clock.after(RETRY_MS, () => void this.update(podUid)),
      );
    }
  }

  close(): void {
    for (const podUid of [...this.#retries.keys()]) this.#stopRetry(podUid);
  }

  #stopRetry(podUid: string): void {
    this.#retries.get(podUid)?.();
    this.#retries.delete(podUid);
  }
}
