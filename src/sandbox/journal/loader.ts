import { lstat, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  Code,
  type Counters,
  errnoOf,
  type KeyedLock,
  type Log,
  messageOf,
  oncePerKey,
  Reason,
  ShimError,
} from '../../core/index.ts';
import { badFile, knownFile, recordFile } from './file-names.ts';
import { readBounded } from './files.ts';
import {
  decodeRecord,
  MAX_RECORD_BYTES,
  NewerRecord,
  type PodRecord,
  type VolumeRecord,
  type WrittenRecord,
} from './record.ts';

/**
 * Why a record must not be changed: a newer shim has written it, or it cannot be read at present (EIO, EMFILE). Its
 * content is unknown, so nothing may replace or remove it.
 */
interface Withheld {
  readonly kind: 'newer' | 'unread';
  readonly why: string;
}

/** The number of withheld records, by kind. */
export type WithheldCounts = Readonly<Record<Withheld['kind'], number>>;

const REMEDY = {
  newer: 'install the newer shim again, or remove the file to give up what it stores',
  unread: 'check the disk; the shim reads the file again every 10 s',
} as const satisfies Record<Withheld['kind'], string>;

/** The records that are withheld, by file name (KEP-1287, restart tolerance, also after a downgrade). */
export class WithheldRecords {
  readonly #records = new Map<string, Withheld>();

  constructor(private readonly folder: string) {}

  /** Sets why a record is withheld. Undefined ends that. */
  set(name: string, withheld: Withheld | undefined): void {
    if (withheld === undefined) this.#records.delete(name);
    else this.#records.set(name, withheld);
  }

  /** Returns the file names of the withheld records. */
  names(): readonly string[] {
    return [...this.#records.keys()];
  }

  counts(): WithheldCounts {
    const unread = [...this.#records.values()].filter(({ kind }) => kind === 'unread').length;
    return { unread, newer: this.#records.size - unread };
  }

  /** Returns the error for a change of a pod's record while the record is withheld. */
  refusal(podUid: string): ShimError | undefined {
    const name = recordFile(podUid);
    const withheld = this.#records.get(name);
    if (withheld === undefined) return undefined;
    const file = join(this.folder, name);
    const message = `the journal's record of pod ${podUid} is read-only: ${file} ${withheld.why}: ${REMEDY[withheld.kind]}`;
    return new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, message, { pod: podUid, file });
  }
}

/** Maximum number of unreadable records to retain for inspection. The newest ones are retained. */
const MAX_BAD_FILES = 16;
/**
 * Errors of open(2) that a file of the wrong kind causes: a symbolic link, a socket, a device without a driver. Any
 * other error is a fault of the disk or a shortage of the machine, and says nothing about the record.
 */
const WRONG_KIND = new Set(['ELOOP', 'ENXIO', 'ENODEV']);

/** Reads a file of at most `max` bytes. */
export type ReadFile = (file: string, max: number) => Promise<Buffer>;

/** A record that was read, or why it is withheld. */
export type ReadRecord =
  | { readonly record: WrittenRecord; readonly withheld?: undefined }
  | { readonly withheld: Withheld; readonly record?: undefined };

const MESSAGES = {
  newer: 'journal record of a newer version ignored',
  unread: 'journal record not readable at present',
} as const satisfies Record<Withheld['kind'], string>;

/** Reads records with arbitrary content. A bad record is moved aside for inspection. */
export class RecordReader {
  readonly #first = oncePerKey();

  constructor(
    private readonly folder: string,
    private readonly log: Log,
    private readonly counters: Counters,
    private readonly readFile: ReadFile = readBounded,
  ) {}

  /**
   * Returns a record, or why it is withheld; undefined if there is none, or if no shim can read it: then it is moved
   * aside. Counts and logs each record that it does not return; an empty one is only logged. Never rejects.
   */
  async read(name: string): Promise<ReadRecord | undefined> {
    const file = join(this.folder, name);
    try {
      const content = await this.readFile(file, MAX_RECORD_BYTES);
      // A crash of the machine can leave the name of a record that is not synced without its content.
      if (content.length === 0) {
        this.log.info({ file }, 'empty journal record removed');
        await this.removeLeftover(name);
        return undefined;
      }
      const record = decodeRecord(content);
      if (recordFile(record.podUid) !== name)
        throw new Error('is the record of a pod that its file name does not match');
      return { record };
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === 'ENOENT') return undefined;
      if (error instanceof NewerRecord) return this.#withheld(file, 'newer', error.message);
      if (errno !== undefined && !WRONG_KIND.has(errno)) return this.#withheld(file, 'unread', messageOf(error));
      await this.#setAside(file, name, error);
      return undefined;
    }
  }

  #withheld(file: string, kind: Withheld['kind'], why: string): ReadRecord {
    const isFirst = this.#first(`${file} ${why}`);
    // A newer record stays until the next upgrade: it counts as one fault, however often it is read.
    if (isFirst || kind === 'unread') this.counters.journalFault(`${kind}_record`);
    if (isFirst) this.log.error({ file, error: why }, MESSAGES[kind]);
    return { withheld: { kind, why: kind === 'newer' ? why : `cannot be read: ${why}` } };
  }

  /** Counts a bad record, logs it once, and moves it aside. */
  async #setAside(file: string, name: string, error: unknown): Promise<void> {
    this.counters.journalFault('bad_record');
    const fields: { file: string; error: string; movedTo?: string; notMoved?: string } = {
      file,
      error: messageOf(error),
    };
    try {
      const place = join(this.folder, badFile(name));
      // Recursive, because a folder at this path would make the rename fail.
      await rm(place, { recursive: true, force: true });
      await rename(file, place);
      fields.movedTo = badFile(name);
    } catch (failure) {
      fields.notMoved = messageOf(failure);
    }
    if (this.#first(`${file} ${fields.error}`)) this.log.error(fields, 'journal record unreadable');
  }

  /** Removes a leftover file. Never rejects: a leftover that cannot be removed does no harm. */
  async removeLeftover(name: string): Promise<void> {
    const file = join(this.folder, name);
    try {
      await rm(file, { force: true, recursive: true });
    } catch (error) {
      this.#leftoverStays(file, error);
    }
  }

  /** Removes the oldest unreadable records except for {@link MAX_BAD_FILES}. Never rejects. */
  async removeOldestBad(): Promise<void> {
    try {
      const bad = (await readdir(this.folder)).filter((name) => knownFile(name)?.kind === 'bad');
      // Sorted by the time of the move (ctime): the content may be much older.
      const aged = await Promise.all(
        bad.map(async (name) => ({ name, at: (await lstat(join(this.folder, name))).ctimeMs })),
      );
      aged.sort((a, b) => b.at - a.at);
      for (const { name } of aged.slice(MAX_BAD_FILES)) await this.removeLeftover(name);
    } catch (error) {
      this.#leftoverStays(this.folder, error);
    }
  }

  #leftoverStays(file: string, error: unknown): void {
    if (!this.#first(`leftover ${file}`)) return;
    this.log.warn({ file, error: messageOf(error) }, 'journal leftover not removed');
  }
}

/** A loaded record. */
export interface LoadedRecord extends PodRecord {
  /** Written before a reboot: only volumes and deferred requests are still valid. */
  readonly earlierBoot: boolean;
}

/** A valid record, or why it is withheld. Empty if there is no record. */
interface FoundRecord {
  readonly record?: LoadedRecord;
  readonly withheld?: Withheld | undefined;
}

export interface RecordLoaderOptions {
  readonly folder: string;
  readonly reader: RecordReader;
  readonly withheld: WithheldRecords;
  /** Serializes the changes of a file, by its name. */
  readonly lock: KeyedLock;
}

/** Loads the records of the state folder, and removes leftovers of a crash or a reboot. */
export class RecordLoader {
  constructor(private readonly options: RecordLoaderOptions) {}

  /** Returns all records that can be read. Rejects when the folder cannot be read. */
  async all(bootId: string): Promise<LoadedRecord[]> {
    const { folder, reader } = this.options;
    const names = await readdir(folder);
    const loaded: LoadedRecord[] = [];
    for (const name of names.sort()) {
      const record = await this.#file(name, bootId);
      if (record !== undefined) loaded.push(record);
    }
    await reader.removeOldestBad();
    return loaded;
  }

  /**
   * Reads the withheld records again: the disk may work again, or the file may have been replaced. Passes each record
   * to `onRead` as soon as it may be changed. Returns the number of these records. Never rejects.
   */
  async withheld(bootId: string, onRead: (record: LoadedRecord) => void): Promise<number> {
    const { lock, withheld } = this.options;
    let count = 0;
    for (const name of withheld.names()) {
      await lock.run(name, async () => {
        const read = await this.#record(name, bootId);
        // Nothing is awaited between these statements: a change would otherwise replace this record by an empty one.
        withheld.set(name, read.withheld);
        if (read.record === undefined) return;
        count += 1;
        onRead(read.record);
      });
    }
    return count;
  }

  async #file(name: string, bootId: string): Promise<LoadedRecord | undefined> {
    const known = knownFile(name);
    if (known === undefined || known.kind === 'bad') return undefined;
    // Takes the lock: a temporary file that is being written is not a leftover.
    return this.options.lock.run(known.record, async () => {
      if (known.kind === 'record') {
        const read = await this.#record(name, bootId);
        this.options.withheld.set(name, read.withheld);
        return read.record;
      }
      await this.options.reader.removeLeftover(name);
      return undefined;
    });
  }

  async #record(name: string, thisBoot: string): Promise<FoundRecord> {
    const { reader } = this.options;
    const read = await reader.read(name);
    if (read?.record === undefined) return { withheld: read?.withheld };
    const { bootId, podUid, sandboxId, transaction, holds, volumes, resizes, admitted } = read.record;
    const earlierBoot = bootId !== thisBoot;
    // The cgroups and mounts that the steps name do not exist after a reboot.
    if (earlierBoot && volumes.size === 0 && resizes === undefined) {
      await reader.removeLeftover(name);
      return {};
    }
    const record = {
      podUid,
      sandboxId,
      ...(transaction !== undefined && !earlierBoot && { transaction }),
      ...(holds !== undefined && !earlierBoot && { holds }),
      volumes: earlierBoot ? withoutMounts(volumes) : volumes,
      ...(resizes !== undefined && { resizes }),
      ...(admitted !== undefined && !earlierBoot && { admitted }),
      earlierBoot,
    };
    return { record };
  }
}

/** Returns the records without mounts: policies stay valid after a reboot, mounts do not. */
function withoutMounts(volumes: PodRecord['volumes']): PodRecord['volumes'] {
  const kept = ({ policy, source, annotated, mounted }: VolumeRecord): VolumeRecord => ({
    ...{ policy, source, annotated },
    ...(mounted !== undefined && { mounted }),
  });
  return new Map([...volumes].map(([name, record]) => [name, kept(record)]));
}
