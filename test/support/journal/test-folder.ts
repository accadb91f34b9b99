import { lstatSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createCounters } from '../../../src/core/observe/counters.ts';
import type { LogFields } from '../../../src/core/observe/interfaces.ts';
import type { PodRecord } from '../../../src/sandbox/journal/record.ts';
import { Journal, type JournalOptions } from '../../../src/sandbox/journal/store.ts';
import { timerlessClock } from '../fake-clock.ts';
import { podUid } from './numbered.ts';

/** The file of pod `podUid`. */
export const recordName = `${podUid}.json`;
/** The uid of another pod. */
export const uid = (number: number): string => `${podUid.slice(0, -4)}${String(number).padStart(4, '0')}`;
/** A record as it is loaded in the boot that wrote it. */
export const ofThisBoot = (record: PodRecord) => ({ ...record, earlierBoot: false });
export const modeOf = (path: string): string => (lstatSync(path).mode & 0o7777).toString(8);

/** A temporary state folder, with the journals that a test opens in it and what they log and count. */
export class TestFolder {
  readonly base = mkdtempSync(join(tmpdir(), 'journal-'));
  folder = join(this.base, 'state');
  readonly counters = createCounters();
  readonly logged: { level: string; fields: LogFields; message: string }[] = [];
  readonly #opened: Journal[] = [];

  /** Opens a journal whose disk operations have no time limit, unless `options` contain a clock. */
  open(options: JournalOptions = {}): Promise<Journal> {
    return this.openAnyBoot({ bootId: 'boot-1', ...options });
  }

  /** Opens a journal that reads the boot id of the kernel, unless `options` contain a boot id. */
  async openAnyBoot(options: JournalOptions): Promise<Journal> {
    const record = (level: string) => (fields: LogFields, message: string) =>
      void this.logged.push({ level, fields, message });
    const log = { debug: record('debug'), info: record('info'), warn: record('warn'), error: record('error') };
    const journal = await Journal.open(this.folder, {
      log,
      counters: this.counters,
      clock: timerlessClock,
      ...options,
    });
    this.#opened.push(journal);
    return journal;
  }

  async closeAll(): Promise<void> {
    for (const journal of this.#opened.splice(0)) await journal.close();
  }

  async remove(): Promise<void> {
    await this.closeAll();
    rmSync(this.base, { recursive: true });
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  get messages(): string[] {
    return this.logged.map(({ message }) => message);
  }

  /** The open file descriptors of this process that lead into the folder. */
  descriptors(): string[] {
    return readdirSync('/proc/self/fd').flatMap((fd) => {
      try {
        const target = readlinkSync(`/proc/self/fd/${fd}`);
        return target.startsWith(this.base) ? [target] : [];
      } catch {
        return []; // The descriptor of the listing itself.
      }
    });
  }
}
