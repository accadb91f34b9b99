import { type FileHandle, readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Slots } from '../../cgroups/index.ts';
import { Code, Reason, ShimError, errnoOf, messageOf } from '../../core/errors/index.ts';
import { type Counters, type Log, noCounters, noLog } from '../../observe/index.ts';
import { knownFile, recordFile } from './file-names.ts';
import { StateFolder, removeFile, replaceFile, writeThrough } from './files.ts';
import { RecordReader } from './reader.ts';
import { type PodRecord, encodeRecord } from './record.ts';
import { type Clock, KeyedLock, systemClock } from '../../core/concurrency/index.ts';

/** Random, and another after each boot of the machine (random(4)). */
const BOOT_ID_FILE = '/proc/sys/kernel/random/boot_id';
/** Written and removed to see whether the folder takes files. One block of a file system. */
const PROBE = { file: '.probe', content: Buffer.alloc(4096) };
/** On a disk that hangs, each takes a thread of the pool, and other files are to be read by the rest. */
const MOST_CHANGES_AT_A_TIME = 2;
/** Without a resize nobody else would notice that there is room again, or that a folder has been mended. */
export const RECHECK_MS = 10_000;
/** A disk that takes longer for one block is as good as none to whoever waits for a resize. */
export const ANSWER_MS = 2000;

export interface JournalOptions {
  /** This boot's id; the kernel's when absent. */
  readonly bootId?: string;
  readonly log?: Log;
  readonly counters?: Counters;
  /** With one, a journal that cannot be used is checked every {@link RECHECK_MS} until it can. */
  readonly clock?: Clock;
}

/** Whether a resize can be journalled, and why not. */
export type Readiness = { readonly ready: true } | { readonly ready: false; readonly error: ShimError };

/** A record as {@link Journal.load} gives it. */
export interface LoadedRecord extends PodRecord {
  /** From before the machine was started anew: only volumes and deferred requests are left of it. */
  readonly earlierBoot: boolean;
}

/** What a pod's file shall become. */
type Content = { readonly record: Buffer } | { readonly removed: 'lasting' | 'in this boot' };

interface Turn {
  content: Content;
  done: Promise<void>;
}

/**
 * What is under way or allocated, one file for each pod in the state folder, so that a restart can finish or undo it. Once a
 * promise of `write` or `remove` is fulfilled it has reached the disk. Writes of one pod come one after the other and the
 * newest wins; those of several go side by side.
 */
export class Journal {
  readonly folder: string;
  readonly #stateFolder: StateFolder;
  readonly #log: Log;
  readonly #counters: Counters;
  readonly #reader: RecordReader;
  readonly #lock = new KeyedLock();
  readonly #slots = new Slots(MOST_CHANGES_AT_A_TIME);
  /** The next turn of each file, which takes the newest content there is when it comes. */
  readonly #next = new Map<string, Turn>();
  /** Pods whose records should have gone and could not be removed. */
  readonly #unremoved = new Set<string>();
  #bootId: string | undefined;
  #fault: ShimError | undefined;
  readonly #clock: Clock | undefined;
  #stopRecheck: (() => void) | undefined;
  /** When the folder has last taken a file. */
  #takenAt = -Infinity;
  #looking: Promise<Readiness> | undefined;

  private constructor(folder: string, { bootId, log = noLog, counters = noCounters, clock }: JournalOptions) {
    this.folder = folder;
    this.#stateFolder = new StateFolder(folder);
    this.#bootId = bootId;
    this.#log = log;
    this.#counters = counters;
    this.#clock = clock;
    this.#reader = new RecordReader(folder, log, counters);
  }

  /** Never rejects for the folder's sake: what is wrong with it is said by {@link readiness} and by every write. */
  static async open(folder: string, options: JournalOptions = {}): Promise<Journal> {
    const journal = new Journal(folder, options);
    await journal.check();
    return journal;
  }

  /** As of the last write or check: not ready from a failure until a write or a check succeeds again. */
  get readiness(): Readiness {
    return this.#fault === undefined ? { ready: true } : { ready: false, error: this.#fault };
  }

  /**
   * As it is now: the folder is looked at when it has taken no file for {@link RECHECK_MS}, so that a disk which has become full
   * or read-only is known before a resize finds out. Not ready when that has no answer within {@link ANSWER_MS}. Never rejects.
   */
  async readinessNow(): Promise<Readiness> {
    if (this.#fault !== undefined || this.#now() - this.#takenAt < RECHECK_MS) return this.readiness;
    // Of a disk that hangs nothing comes back: it is looked at once, however many ask.
    this.#looking ??= this.check().finally(() => (this.#looking = undefined));
    let stop = (): void => undefined;
    const late = new Promise<Readiness>((resolve) => {
      stop = (this.#clock ?? systemClock).after(ANSWER_MS, () => resolve({ ready: false, error: this.#unanswered() }));
    });
    try {
      return await Promise.race([this.#looking, late]);
    } finally {
      stop();
    }
  }

  #now(): number {
    return (this.#clock ?? systemClock).now();
  }

  #unanswered(): ShimError {
    const message = `the journal cannot be used: ${this.folder} has not taken a file within ${ANSWER_MS} ms`;
    return new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, message, { file: this.folder });
  }

  /** Finds out whether the folder takes files, and removes what could not be removed before. Never rejects. */
  async check(): Promise<Readiness> {
    const file = join(this.folder, PROBE.file);
    try {
      await this.#readBootId();
      await this.#lock.run(PROBE.file, () => this.#change(() => probe(file)));
      for (const podUid of [...this.#unremoved]) await this.#removeAgain(podUid);
      this.#available();
    } catch (error) {
      if (!(error instanceof ShimError)) this.#unavailable(error, file);
    }
    return this.readiness;
  }

  async #readBootId(): Promise<string> {
    try {
      return (this.#bootId ??= (await readFile(BOOT_ID_FILE, 'utf8')).trim());
    } catch (error) {
      throw this.#unavailable(error, BOOT_ID_FILE);
    }
  }

  #removeAgain(podUid: string): Promise<void> {
    const name = recordFile(podUid);
    // In a turn of its own, and only if it is still to go: it must not take the place of a write that waits.
    return this.#lock.run(name, async () => {
      if (this.#unremoved.has(podUid)) await this.#carryOut(podUid, name, { removed: 'lasting' });
    });
  }

  /**
   * Takes the place of what was written for this pod before. Rejects with JOURNAL_UNAVAILABLE when it could not be
   * brought to the disk (the older record is there then, or rarely, when the last fsync failed, this one), with
   * INVALID_VALUE when it is too large. Superseded by a newer write or removal of the same pod it has that one's outcome.
   */
  async write(record: PodRecord): Promise<void> {
    // No wait where it is known: what was written first must be in line first.
    const bootId = this.#bootId ?? (await this.#readBootId());
    await this.#put(record.podUid, { record: encodeRecord(record, bootId) });
  }

  /**
   * Removes a pod's record; none is fine. Rejects with JOURNAL_UNAVAILABLE: the record may still be there then, and
   * {@link check} tries again.
   * @param until of a record that says nothing to a later boot, a crash of the machine does away with what it says: its
   *   removal need not wait for the disk
   */
  async remove(podUid: string, until: 'lasting' | 'in this boot' = 'lasting'): Promise<void> {
    await this.#put(podUid, { removed: until });
  }

  #put(podUid: string, content: Content): Promise<void> {
    const name = recordFile(podUid);
    const waiting = this.#next.get(name);
    if (waiting !== undefined) {
      waiting.content = content;
      return waiting.done;
    }
    const turn: Turn = { content, done: Promise.resolve() };
    // Before its turn is asked for, which may come at once.
    this.#next.set(name, turn);
    turn.done = this.#lock.run(name, () => {
      this.#next.delete(name);
      return this.#carryOut(podUid, name, turn.content);
    });
    return turn.done;
  }

  async #carryOut(podUid: string, name: string, content: Content): Promise<void> {
    try {
      await this.#change((folder) =>
        'record' in content
          ? replaceFile(this.folder, folder, name, content.record)
          : removeFile(this.folder, folder, name, content.removed === 'lasting'),
      );
    } catch (error) {
      if ('removed' in content) this.#unremoved.add(podUid);
      throw this.#unavailable(error, join(this.folder, name), podUid);
    }
    this.#unremoved.delete(podUid);
    // A removal needs no room: that it works does not say that a write will.
    if ('record' in content) this.#available();
  }

  #change(change: (folder: FileHandle) => Promise<void>): Promise<void> {
    return this.#slots.run(async () => change(await this.#stateFolder.opened()));
  }

  /**
   * All records that can be read. Those that cannot are moved aside as `<name>.bad`, counted and logged; what a crash has
   * left half-written is removed. Of an earlier boot nothing is left but volumes and deferred requests. Never rejects:
   * without a usable folder there are none, and {@link readiness} says why. May be called at any time.
   */
  async load(): Promise<LoadedRecord[]> {
    try {
      const bootId = await this.#readBootId();
      await this.#stateFolder.opened();
      const names = await readdir(this.folder);
      const loaded: LoadedRecord[] = [];
      for (const name of names.sort()) {
        const record = await this.#loadFile(name, bootId);
        if (record !== undefined) loaded.push(record);
      }
      await this.#reader.removeOldestBad();
      return loaded;
    } catch (error) {
      if (!(error instanceof ShimError)) this.#unavailable(error, this.folder);
      return [];
    }
  }

  async #loadFile(name: string, bootId: string): Promise<LoadedRecord | undefined> {
    const known = knownFile(name);
    if (known === undefined || known.kind === 'bad') return undefined;
    // In its turn: what is being written is no leftover.
    return this.#lock.run(known.record, async () => {
      if (known.kind === 'record') return this.#loadRecord(name, bootId);
      await this.#reader.removeLeftover(name);
      return undefined;
    });
  }

  async #loadRecord(name: string, thisBoot: string): Promise<LoadedRecord | undefined> {
    const written = await this.#reader.read(name);
    if (written === undefined) return undefined;
    const { bootId, podUid, sandboxId, transaction, volumes, resizes } = written;
    const earlierBoot = bootId !== thisBoot;
    // What the steps speak of, cgroups and mounts, has gone with that boot.
    if (earlierBoot && volumes.size === 0 && resizes === undefined) {
      await this.#reader.removeLeftover(name);
      return undefined;
    }
    return {
      podUid,
      sandboxId,
      ...(transaction !== undefined && !earlierBoot && { transaction }),
      volumes: earlierBoot ? withoutMounts(volumes) : volumes,
      ...(resizes !== undefined && { resizes }),
      earlierBoot,
    };
  }

  #available(): void {
    this.#takenAt = this.#now();
    if (this.#fault !== undefined) this.#log.info({ folder: this.folder }, 'the journal can be written again');
    this.#fault = undefined;
    this.#recheckNoMore();
  }

  #recheckNoMore(): void {
    this.#stopRecheck?.();
    this.#stopRecheck = undefined;
  }

  /** Lets go of the folder, once what is under way is done, and checks no more by itself. */
  async close(): Promise<void> {
    this.#recheckNoMore();
    await this.#stateFolder.close();
  }

  #recheckLater(): void {
    this.#stopRecheck ??= this.#clock?.after(RECHECK_MS, () => {
      this.#stopRecheck = undefined;
      void this.check();
    });
  }

  #unavailable(cause: unknown, file: string, pod?: string): ShimError {
    const errno = errnoOf(cause);
    const context = { file, ...(pod === undefined ? {} : { pod }), ...(errno === undefined ? {} : { errno }) };
    const message = `the journal cannot be used: ${file}: ${messageOf(cause)}`;
    const error = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, message, context, { cause });
    this.#counters.journalFault('unavailable');
    if (this.#fault === undefined) this.#log.error({ file, error: messageOf(cause) }, 'the journal cannot be used');
    this.#fault = error;
    this.#recheckLater();
    return error;
  }
}

/** What decides their sizes outlives a boot; how they were mounted does not. */
function withoutMounts(volumes: PodRecord['volumes']): PodRecord['volumes'] {
  return new Map([...volumes].map(([name, { policy, source, annotated }]) => [name, { policy, source, annotated }]));
}

async function probe(file: string): Promise<void> {
  try {
    await writeThrough(file, PROBE.content);
  } finally {
    await rm(file, { force: true });
  }
}
