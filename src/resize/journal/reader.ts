import { lstat, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import { type Counters, type Log, oncePerKey } from '../../observe/index.ts';
import { badFile, knownFile, recordFile } from './file-names.ts';
import { readBounded } from './files.ts';
import { MAX_RECORD_BYTES, NewerRecord, type WrittenRecord, decodeRecord } from './record.ts';
import type { Withheld } from './withheld.ts';

/** How many unreadable records are kept for inspection, the newest ones. */
const MAX_BAD_FILES = 16;
/**
 * Errors of open(2) that a file of the wrong kind causes: a symbolic link, a socket, a device without a driver. Any other error is a
 * fault of the disk or a shortage of the machine, and says nothing about the record.
 */
const WRONG_KIND = new Set(['ELOOP', 'ENXIO', 'ENODEV']);

/** Reads a file of at most `max` bytes. */
export type ReadFile = (file: string, max: number) => Promise<Buffer>;

/** A record that was read, or why it stays as it is. */
export type ReadRecord =
  | { readonly record: WrittenRecord; readonly withheld?: undefined }
  | { readonly withheld: Withheld; readonly record?: undefined };

const MESSAGES = {
  newer: 'journal record of a newer version left alone',
  unread: 'journal record not readable at present',
} as const satisfies Record<Withheld['kind'], string>;

/** Reads records with arbitrary content. A bad record is moved aside for inspection. */
export class RecordReader {
  readonly #folder: string;
  readonly #log: Log;
  readonly #counters: Counters;
  readonly #readFile: ReadFile;
  readonly #first = oncePerKey();

  constructor(folder: string, log: Log, counters: Counters, readFile: ReadFile = readBounded) {
    this.#folder = folder;
    this.#log = log;
    this.#counters = counters;
    this.#readFile = readFile;
  }

  /**
   * Returns a record, or why it is withheld; undefined when there is none, or none that any shim can read: that one is moved aside.
   * Counts and logs each record that it does not return. Never rejects.
   */
  async read(name: string): Promise<ReadRecord | undefined> {
    const file = join(this.#folder, name);
    try {
      const record = decodeRecord(await this.#readFile(file, MAX_RECORD_BYTES));
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
    // A newer record stays until the next upgrade: it is one fault, however often it is read.
    if (isFirst || kind === 'unread') this.#counters.journalFault(`${kind}_record`);
    if (isFirst) this.#log.error({ file, error: why }, MESSAGES[kind]);
    return { withheld: { kind, why: kind === 'newer' ? why : `cannot be read: ${why}` } };
  }

  /** Counts a bad record, logs it once, and moves it aside. */
  async #setAside(file: string, name: string, error: unknown): Promise<void> {
    this.#counters.journalFault('bad_record');
    const fields: { file: string; error: string; movedTo?: string; notMoved?: string } = {
      file,
      error: messageOf(error),
    };
    try {
      const place = join(this.#folder, badFile(name));
      // Recursive, because a folder at this path would make the rename fail.
      await rm(place, { recursive: true, force: true });
      await rename(file, place);
      fields.movedTo = badFile(name);
    } catch (failure) {
      fields.notMoved = messageOf(failure);
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
