import { existsSync } from 'node:fs';
import { lstat, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import { type Counters, type Log, oncePerKey } from '../../observe/index.ts';
import { badFile, knownFile, newerFile, recordFile } from './file-names.ts';
import { readBounded } from './files.ts';
import { MAX_RECORD_BYTES, NewerRecord, type WrittenRecord, decodeRecord } from './record.ts';

/** How many unreadable records are kept for inspection, the newest ones. */
const MAX_BAD_FILES = 16;
/** Temporary shortages: a record that cannot be opened for one of these is not bad. */
const TEMPORARY = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

/** Reads records with arbitrary content. An unreadable record is moved aside for inspection. */
export class RecordReader {
  readonly #folder: string;
  readonly #log: Log;
  readonly #counters: Counters;
  readonly #first = oncePerKey();

  constructor(folder: string, log: Log, counters: Counters) {
    this.#folder = folder;
    this.#log = log;
    this.#counters = counters;
  }

  /** Returns a record; undefined when it is gone, or unreadable, which is counted and logged. Never rejects. */
  async read(name: string): Promise<WrittenRecord | undefined> {
    const file = join(this.#folder, name);
    try {
      const record = decodeRecord(await readBounded(file, MAX_RECORD_BYTES));
      if (recordFile(record.podUid) !== name)
        throw new Error('is the record of a pod that its file name does not match');
      return record;
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === 'ENOENT') return undefined;
      const isTemporary = errno !== undefined && TEMPORARY.has(errno);
      const aside = error instanceof NewerRecord ? newerFile(name) : badFile(name);
      await this.#reportUnreadable(file, error, isTemporary ? undefined : aside);
      return undefined;
    }
  }

  /**
   * Moves a record that an older shim has moved aside back, if this shim reads its version. A record that the older shim has written
   * in the meantime replaces it. Returns whether there is a record to read. Never rejects.
   */
  async restoreNewer(newer: string, name: string): Promise<boolean> {
    const [from, to] = [join(this.#folder, newer), join(this.#folder, name)];
    try {
      decodeRecord(await readBounded(from, MAX_RECORD_BYTES));
      if (existsSync(to)) {
        await rm(from);
        return false;
      }
      await rename(from, to);
      return true;
    } catch (error) {
      if (!(error instanceof NewerRecord)) this.#leftoverStays(from, error);
      return false;
    }
  }

  /** Counts an unreadable record, logs it once, and moves it to `aside` unless that is undefined. */
  async #reportUnreadable(file: string, error: unknown, aside: string | undefined): Promise<void> {
    this.#counters.journalFault('bad_record');
    const fields: { file: string; error: string; movedTo?: string; notMoved?: string } = {
      file,
      error: messageOf(error),
    };
    if (aside !== undefined) {
      try {
        const place = join(this.#folder, aside);
        // Recursive, because a folder at this path would make the rename fail.
        await rm(place, { recursive: true, force: true });
        await rename(file, place);
        fields.movedTo = aside;
      } catch (failure) {
        fields.notMoved = messageOf(failure);
      }
    }
    if (this.#first(`${file} ${fields.error}`)) this.#log.error(fields, 'journal record unreadable');
  }

  /** Removes a leftover file. Never rejects: a leftover that cannot be removed does no harm. */
  async removeLeftover(name: string): Promise<void> {
    const file = join(this.#folder, name);
    try {
      await rm(file, { force: true, recursive: true });
    } catch (error) {
      this.#leftoverStays(file, error);
    }
  }

  /** Removes all but the newest {@link MAX_BAD_FILES} unreadable records. Never rejects. */
  async removeOldestBad(): Promise<void> {
    try {
      const bad = (await readdir(this.#folder)).filter((name) => knownFile(name)?.kind === 'bad');
      // Sorted by the time of the move (ctime): the content may be much older.
      const aged = await Promise.all(
        bad.map(async (name) => ({ name, at: (await lstat(join(this.#folder, name))).ctimeMs })),
      );
      aged.sort((a, b) => b.at - a.at);
      for (const { name } of aged.slice(MAX_BAD_FILES)) await this.removeLeftover(name);
    } catch (error) {
      this.#leftoverStays(this.#folder, error);
    }
  }

  #leftoverStays(file: string, error: unknown): void {
    if (!this.#first(`leftover ${file}`)) return;
    this.#log.warn({ file, error: messageOf(error) }, 'journal leftover not removed');
  }
}
