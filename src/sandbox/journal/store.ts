import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Clock,
  type Counters,
  KeyedLock,
  type Log,
  noCounters,
  noLog,
  ShimError,
  Slots,
  systemClock,
} from '../../core/index.ts';
import {
  ANSWER_MS,
  Availability,
  atMost,
  inTime,
  LateChange,
  LONGEST_CHANGE_MS,
  type Readiness,
  type RequestedChange,
  unavailable,
} from './availability.ts';
import { recordFile } from './file-names.ts';
import { removeFile, replaceFile, StateFolder, writeThrough } from './files.ts';
import {
  type LoadedRecord,
  type ReadFile,
  RecordLoader,
  RecordReader,
  type WithheldCounts,
  WithheldRecords,
} from './loader.ts';
import { encodeRecord, type PodRecord } from './record.ts';

/** A random id, new after each boot of the machine (random(4)). */
const BOOT_ID_FILE = '/proc/sys/kernel/random/boot_id';
/** Written and removed to check whether the folder is writable. The size is one block of a file system. */
const PROBE = { file: '.probe', content: Buffer.alloc(4096) };
/** Maximum number of concurrent changes. On a hung disk, each blocks one of the threads that libuv has for files. */
const MAX_CONCURRENT_CHANGES = 2;
/** Maximum time that the start waits for records, in ms. With the first check: {@link LONGEST_CHANGE_MS}. */
const LONGEST_READ_MS = LONGEST_CHANGE_MS - ANSWER_MS;

export interface JournalOptions {
  /** The id of this boot; read from the kernel when absent. */
  readonly bootId?: string;
  readonly log?: Log;
  readonly counters?: Counters;
  /** With a clock, an unavailable journal is checked until it is available; see {@link Availability}. */
  readonly clock?: Clock;
  /** Reads the file of a record. */
  readonly readFile?: ReadFile;
}

/**
 * How long a change must last. `durable`: also after a crash of the machine. `this-boot`: until the next boot, for
 * which the page cache of the kernel suffices, so that a resize does not wait for the disk.
 */
type Lasting = 'durable' | 'this-boot';

/** The requested content of a pod's file; undefined to remove the file. */
interface Content {
  readonly record: Buffer | undefined;
  readonly lasting: Lasting;
}

/** A change of a file that waits for an earlier change of the same file. */
interface QueuedChange extends RequestedChange {
  content: Content;
  done: Promise<void>;
  startedAt: number | undefined;
}

/**
 * The journal files, one for each pod in the state folder, from which a restarted shim completes or rolls back
 * transactions. Once the promise of a durable change resolves, the change has reached the disk. Changes of one pod run
 * one after the other, and of those that wait only the newest runs; changes of different pods run concurrently.
 */
export class Journal {
  readonly folder: string;
  readonly #stateFolder: StateFolder;
  readonly #log: Log;
  readonly #availability: Availability;
  readonly #withheld: WithheldRecords;
  readonly #loader: RecordLoader;
  readonly #lock = new KeyedLock();
  readonly #slots = new Slots(MAX_CONCURRENT_CHANGES);
  /** The next change of each file. It writes the newest content at the time it runs. */
  readonly #next = new Map<string, QueuedChange>();
  /** Pods whose records could not be removed. */
  readonly #unremoved = new Set<string>();
  /** Records whose last write failed, by pod uid. The file may have them: the folder is synced after the rename. */
  readonly #unwritten = new Map<string, Buffer>();
  #bootId: string | undefined;
  readonly #clock: Clock;
  /** When the last change of any file ended, failed ones included. */
  #lastEnd = -Infinity;
  /** Set if the folder could not be read in time. Its records are unknown then, so none may be written. */
  #unloaded: { readonly cause: unknown } | undefined;
  /** The read of all records in progress. */
  #loading: Promise<LoadedRecord[] | undefined> | undefined;
  #onLate: (records: readonly LoadedRecord[]) => void = () => undefined;

  private constructor(folder: string, options: JournalOptions) {
    const { bootId, log = noLog, counters = noCounters, clock, readFile } = options;
    this.folder = folder;
    this.#stateFolder = new StateFolder(folder);
    this.#bootId = bootId;
    this.#log = log;
    this.#clock = clock ?? systemClock;
    const reader = new RecordReader(folder, log, counters, readFile);
    this.#withheld = new WithheldRecords(folder);
    const check = (): Promise<Readiness> => this.check();
    const hasLeft = (): boolean => this.#hasLeft();
    this.#availability = new Availability({ folder, log, counters, clock, check, hasLeft });
    this.#loader = new RecordLoader({ folder, reader, withheld: this.#withheld, lock: this.#lock });
  }

  /**
   * Opens the journal. Does not reject for an unusable folder: {@link readiness} and every write report the fault.
   * Waits at most {@link ANSWER_MS} for a disk that hangs.
   */
  static async open(folder: string, options: JournalOptions = {}): Promise<Journal> {
    const journal = new Journal(folder, options);
    await journal.#availability.firstCheck();
    return journal;
  }

  /** {@link Availability.readiness} */
  get readiness(): Readiness {
    return this.#availability.readiness;
  }

  /** {@link Availability.readinessNow} */
  readinessNow(): Promise<Readiness> {
    return this.#availability.readinessNow();
  }

  /** Calls `listener` with records that were withheld before, as soon as they may be changed. */
  onLate(listener: (records: readonly LoadedRecord[]) => void): void {
    this.#onLate = listener;
  }

  /** Returns the numbers of withheld records. */
  get withheld(): WithheldCounts {
    return this.#withheld.counts();
  }

  /** Returns the error for a change of a pod's record that must not be replaced, because its content is unknown. */
  refusal(podUid: string): ShimError | undefined {
    if (this.#unloaded === undefined) return this.#withheld.refusal(podUid);
    return unavailable(this.#unloaded.cause, join(this.folder, recordFile(podUid)), podUid);
  }

  /** Checks whether the folder is writable, and retries failed reads and removals. Never rejects. */
  async check(): Promise<Readiness> {
    const file = join(this.folder, PROBE.file);
    try {
      const bootId = await this.#readBootId();
      // Before the probe: a full disk can still be read.
      await this.#retryReads(bootId);
      await this.#lock.run(PROBE.file, () => this.#change(() => this.#probe(file)));
      const retries = [...this.#unremoved, ...this.#unwritten.keys()].map((podUid) => this.#retry(podUid));
      // A file that cannot be changed does not prevent the writes of the others.
      await Promise.allSettled(retries);
      await Promise.all(retries);
      this.#availability.setAvailable();
    } catch (error) {
      if (!(error instanceof ShimError)) this.#availability.setUnavailable(error, file);
    }
    if (this.#hasLeft()) this.#availability.recheckLater();
    return this.readiness;
  }

  async #retryReads(bootId: string): Promise<void> {
    if (this.#unloaded === undefined)
      this.#logLate(await this.#loader.withheld(bootId, (record) => this.#onLate([record])));
    else if ((await this.#loadOnce()) === undefined) throw this.#unloaded.cause;
  }

  #logLate(records: number): void {
    if (records > 0) this.#log.info({ records }, 'journal records read that were withheld before');
  }

  async #readBootId(): Promise<string> {
    try {
      return (this.#bootId ??= (await readFile(BOOT_ID_FILE, 'utf8')).trim());
    } catch (error) {
      throw this.#availability.setUnavailable(error, BOOT_ID_FILE);
    }
  }

  #retry(podUid: string): Promise<void> {
    const name = recordFile(podUid);
    // Takes the lock and is not queued in #next, so that it does not replace a waiting write.
    return this.#lock.run(name, async () => {
      const record = this.#unwritten.get(podUid);
      if (record === undefined && !this.#unremoved.has(podUid)) return;
      await this.#applyContent(podUid, name, { record, lasting: 'durable' });
    });
  }

  /**
   * Replaces the pod's record. Rejects with JOURNAL_UNAVAILABLE when the record does not reach the disk: the file then
   * has the previous record or, rarely, if the last fsync failed or the disk hangs, this one. {@link check} writes it
   * again, unless another write or removal comes first. Rejects with INVALID_VALUE when it is too large. A write that a
   * newer write or removal of the same pod supersedes has the outcome of the newer one. Rejects with the {@link
   * refusal} of the pod.
   * @param lasting `this-boot` does not wait for the disk. It suffices if nothing of the record, nor of the one that it
   *   replaces, is valid after a reboot: {@link load} ignores such records of an earlier boot
   */
  async write(record: PodRecord, lasting: Lasting = 'durable'): Promise<void> {
    this.#assertKnown(record.podUid);
    // Awaits nothing once the boot id is known, so that writes queue in the order of their calls.
    const bootId = this.#bootId ?? (await this.#readBootId());
    await this.#inTime(record.podUid, this.#put(record.podUid, { record: encodeRecord(record, bootId), lasting }));
  }

  /**
   * Removes a pod's record; a missing record is not an error. Rejects with JOURNAL_UNAVAILABLE: the record may still
   * exist then, and {@link check} tries again. Rejects with the {@link refusal} of the pod.
   * @param lasting as for {@link write}: after a crash of the machine, the record may reappear
   */
  async remove(podUid: string, lasting: Lasting = 'durable'): Promise<void> {
    this.#assertKnown(podUid);
    await this.#inTime(podUid, this.#put(podUid, { record: undefined, lasting }));
  }

  #assertKnown(podUid: string): void {
    const refusal = this.refusal(podUid);
    if (refusal !== undefined) throw refusal;
  }

  /** Waits for a change, but not for a hung disk: the caller holds the lock of its pod. */
  async #inTime(podUid: string, change: RequestedChange): Promise<void> {
    try {
      await inTime(change, () => this.#lastEnd, this.#clock);
    } catch (error) {
      if (!(error instanceof LateChange)) throw error;
      throw this.#availability.setUnavailable(error, join(this.folder, recordFile(podUid)), podUid);
    }
  }

  /** Whether {@link check} has a file to read, write or remove again. */
  #hasLeft(): boolean {
    return this.#withheld.names().length > 0 || this.#unwritten.size > 0 || this.#unremoved.size > 0;
  }

  #put(podUid: string, content: Content): RequestedChange {
    const name = recordFile(podUid);
    const waiting = this.#next.get(name);
    if (waiting !== undefined) {
      // The caller of the superseded change relies on the outcome of this one.
      waiting.content = { ...content, lasting: longer(content.lasting, waiting.content.lasting) };
      return waiting;
    }
    const change: QueuedChange = { content, done: Promise.resolve(), startedAt: undefined };
    // Set before the lock is requested, because the lock may run the change immediately.
    this.#next.set(name, change);
    change.done = this.#lock.run(name, () => {
      this.#next.delete(name);
      return this.#applyContent(podUid, name, change.content, () => (change.startedAt = this.#clock.now()));
    });
    return change;
  }

  async #applyContent(podUid: string, name: string, { record, lasting }: Content, onStart?: () => void): Promise<void> {
    // After a failure, the disk may have any of the pod's records, also one that outlives the boot. While the journal
    // is unavailable, only a synced change shows whether the disk works again.
    const hasFailed = this.#unremoved.has(podUid) || this.#unwritten.has(podUid) || !this.readiness.ready;
    const isDurable = hasFailed || lasting === 'durable';
    try {
      await this.#change(() => this.#changeFile(name, record, isDurable), onStart);
    } catch (error) {
      this.#settled(podUid);
      if (record === undefined) this.#unremoved.add(podUid);
      else this.#unwritten.set(podUid, record);
      throw this.#availability.setUnavailable(error, join(this.folder, name), podUid);
    }
    this.#settled(podUid);
    // A removal needs no disk space, and the page cache no disk: their success does not prove that the disk works.
    if (record !== undefined && isDurable) this.#availability.setAvailable();
  }

  #changeFile(name: string, record: Buffer | undefined, isDurable: boolean): Promise<void> {
    if (record !== undefined)
      return this.#stateFolder.use((folder) => replaceFile(this.folder, isDurable ? folder : undefined, name, record));
    // Only a sync needs the open folder. It is verified in the thread pool, which takes longer than the removal itself.
    if (!isDurable) return removeFile(this.folder, undefined, name);
    return this.#stateFolder.use((folder) => removeFile(this.folder, folder, name));
  }

  #settled(podUid: string): void {
    this.#unremoved.delete(podUid);
    this.#unwritten.delete(podUid);
  }

  #change(change: () => Promise<void>, onStart?: () => void): Promise<void> {
    return this.#slots.run(async () => {
      onStart?.();
      try {
        await change();
      } finally {
        this.#lastEnd = this.#clock.now();
      }
    });
  }

  async #probe(file: string): Promise<void> {
    await this.#stateFolder.check();
    try {
      await writeThrough(file, PROBE.content);
    } finally {
      await rm(file, { force: true });
    }
  }

  /**
   * Returns all readable records; of those of an earlier boot only volumes and deferred requests. Bad records are moved
   * aside as `<name>.bad`, and temporary files that a crash left behind are removed. Records of a newer shim, and those
   * that the disk does not return, stay as they are and are read-only ({@link refusal}). Never rejects: without a
   * usable folder, or if the disk takes longer than {@link LONGEST_READ_MS}, returns no records, and {@link readiness}
   * has the reason. Nothing is written then until the records are read, which {@link onLate} reports. May be called at
   * any time.
   */
  async load(): Promise<LoadedRecord[]> {
    try {
      return (await atMost(LONGEST_READ_MS, this.#loadOnce(), this.#clock)) ?? [];
    } catch (error) {
      this.#unloaded = { cause: error };
      this.#availability.setUnavailable(error, this.folder);
      return [];
    }
  }

  /** Shares one read between all callers: on a disk that hangs it does not return. */
  #loadOnce(): Promise<LoadedRecord[] | undefined> {
    return (this.#loading ??= this.#loadAll().finally(() => (this.#loading = undefined)));
  }

  /** Loads all records. Returns undefined if the folder cannot be read. Never rejects. */
  async #loadAll(): Promise<LoadedRecord[] | undefined> {
    try {
      const bootId = await this.#readBootId();
      await this.#stateFolder.check();
      const loaded = await this.#loader.all(bootId);
      const isLate = this.#unloaded !== undefined;
      this.#unloaded = undefined;
      // Nothing is awaited before this: a write would replace a record with unknown content.
      if (isLate && loaded.length > 0) this.#onLate(loaded);
      if (isLate) this.#logLate(loaded.length);
      if (this.#hasLeft()) this.#availability.recheckLater();
      return loaded;
    } catch (error) {
      this.#unloaded = { cause: error };
      if (!(error instanceof ShimError)) this.#availability.setUnavailable(error, this.folder);
      return undefined;
    }
  }

  /** Stops the checks and closes the folder. Does not wait for operations: on a hung disk they do not end. */
  async close(): Promise<void> {
    this.#availability.cancelRecheck();
    await this.#stateFolder.close();
  }
}

const longer = (a: Lasting, b: Lasting): Lasting => (a === 'durable' ? a : b);
