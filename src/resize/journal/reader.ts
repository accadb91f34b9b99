import { lstat, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import { type Counters, type Log, oncePerKey } from '../../observe/index.ts';
import { badFile, knownFile, recordFile } from './file-names.ts';
import { readBounded } from './files.ts';
import { MAX_RECORD_BYTES, type WrittenRecord, decodeRecord } from './record.ts';

/** How many records that could not be read are kept for whoever looks into it; the newest. */
const MOST_BAD_FILES = 16;
/** These pass: a record that could not be opened for want of them is not a bad one. */
const WANTS = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

/** Reads records that may be anything: what cannot be read is moved aside, for a person to look at. */
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

  /** A record; undefined when it has gone meanwhile or cannot be read, which is counted and logged. Never rejects. */
  async read(name: string): Promise<WrittenRecord | undefined> {
    const file = join(this.#folder, name);
    try {
      const record = decodeRecord(await readBounded(file, MAX_RECORD_BYTES));
      if (recordFile(record.podUid) !== name) throw new Error('is the record of another pod than its name says');
      return record;
    } catch (error) {
      const errno = errnoOf(error);
      if (errno === 'ENOENT') return undefined;
      await this.#complain(file, error, errno !== undefined && WANTS.has(errno) ? undefined : badFile(name));
      return undefined;
    }
  }

  /** Counts a record that cannot be read, says so once, and moves it aside when it will not be readable later either. */
  async #complain(file: string, error: unknown, aside: string | undefined): Promise<void> {
    this.#counters.journalFault('bad_record');
    const fields: { file: string; error: string; movedTo?: string; notMoved?: string } = {
      file,
      error: messageOf(error),
    };
    if (aside !== undefined) {
      try {
        const place = join(this.#folder, aside);
        // Whatever it is: a folder in its place would be in the way.
        await rm(place, { recursive: true, force: true });
        await rename(file, place);
        fields.movedTo = aside;
      } catch (failure) {
        fields.notMoved = messageOf(failure);
      }
    }
    if (this.#first(`${file} ${fields.error}`)) this.#log.error(fields, 'a record of the journal cannot be read');
  }

  /** Removes what nobody needs. Never rejects: what cannot be removed does no harm where it is. */
  async removeLeftover(name: string): Promise<void> {
    const file = join(this.#folder, name);
    try {
      await rm(file, { force: true, recursive: true });
    } catch (error) {
      this.#leftoverStays(file, error);
    }
  }

  /** Keeps the newest of what was moved aside. Never rejects. */
  async removeOldestBad(): Promise<void> {
    try {
      const bad = (await readdir(this.#folder)).filter((name) => knownFile(name)?.kind === 'bad');
      // By the time of the move: the content may be much older.
      const aged = await Promise.all(
        bad.map(async (name) => ({ name, at: (await lstat(join(this.#folder, name))).ctimeMs })),
      );
      aged.sort((a, b) => b.at - a.at);
      for (const { name } of aged.slice(MOST_BAD_FILES)) await this.removeLeftover(name);
    } catch (error) {
      this.#leftoverStays(this.#folder, error);
    }
  }

  #leftoverStays(file: string, error: unknown): void {
    if (!this.#first(`leftover ${file}`)) return;
    this.#log.warn({ file, error: messageOf(error) }, 'leftovers of the journal could not be removed');
  }
}
