import { messageOf } from '../../core/errors/index.ts';
import type { Log } from '../../observe/index.ts';
import type { ResizeRecord, ResizeStore } from './records.ts';
import { type Clock, KeyedLock } from '../../core/concurrency/index.ts';

/** Interval of retries after a failed write, e.g. on a full disk. */
const RETRY_MS = 30_000;

/** Writes the stored records of pods. The writes of a pod run one after the other, each with the records at its time. */
export class RecordWriter {
  readonly #store: ResizeStore;
  readonly #recordsOf: (podUid: string) => readonly ResizeRecord[];
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #lock = new KeyedLock();
  /** Cancels the retry, for each pod whose last write failed. */
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

  /** Writes a pod's records, before an operation that must not start unless they are stored. Rejects as the store does. */
  save(podUid: string): Promise<void> {
    return this.#lock.run(podUid, async () => {
      this.#stopRetry(podUid);
      await this.#store.persist(podUid, this.#recordsOf(podUid));
    });
  }

  /** Writes a pod's records after an operation, and retries until that succeeds. Never rejects. */
  async store(podUid: string): Promise<void> {
    try {
      await this.save(podUid);
    } catch (error) {
      this.#log.error({ uid: podUid, error: messageOf(error) }, 'storing resize records of a pod failed; will retry');
      this.#stopRetry(podUid);
      this.#retries.set(
        podUid,
        this.#clock.after(RETRY_MS, () => void this.store(podUid)),
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
