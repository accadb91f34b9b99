import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Journal } from '../../../src/sandbox/journal/store.ts';
import { numbered, podUid } from '../../support/journal/numbered.ts';

// Full and read-only disks: a tmpfs of a few pages, as root.
const other = podUid.replace(/^./, 'f');
let folder: string;
let journal: Journal;
const opened: Journal[] = [];
const open = async (): Promise<Journal> => {
  const another = await Journal.open(folder, { bootId: 'boot' });
  opened.push(another);
  return another;
};
const path = (name: string): string => join(folder, name);
const remount = (options: string): void => void execFileSync('mount', ['-o', `remount,${options}`, folder]);
const now = (number: number) => ({ ...numbered(number), earlierBoot: false });
const unavailable = (errno: string) => ({
  code: 9,
  reason: 'JOURNAL_UNAVAILABLE',
  context: { pod: podUid, file: path(`${podUid}.json`), errno },
});

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'journal-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=12k,mode=700', 'tmpfs', folder]);
  journal = await open();
  await journal.write(numbered(1));
});
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
  execFileSync('umount', [folder]);
  rmSync(folder, { recursive: true });
});

describe('a journal on a full disk', () => {
  test('a full disk rejects a record and keeps the previous one, and the journal continues once space is available', async () => {
    writeFileSync(path('files-of-others'), Buffer.alloc(8192));
    const before = readFileSync(path(`${podUid}.json`));
    for (let attempt = 0; attempt < 3; attempt += 1)
      await expect(journal.write(numbered(2))).rejects.toMatchObject(unavailable('ENOSPC'));
    expect(journal.readiness).toMatchObject({ ready: false, error: unavailable('ENOSPC') });
    expect((await journal.check()).ready).toBe(false);
    expect(readFileSync(path(`${podUid}.json`)).equals(before)).toBe(true);
    expect(readdirSync(folder).sort()).toEqual([`${podUid}.json`, 'files-of-others']);
    const restarted = await open();
    expect(restarted.readiness).toMatchObject({ ready: false, error: { context: { errno: 'ENOSPC' } } });
    expect(await restarted.load()).toEqual([now(1)]);

    // A running transaction can end, because removing its record frees space.
    await journal.remove(podUid);
    expect(journal.readiness.ready).toBe(false);
    expect((await journal.check()).ready).toBe(true);
    await journal.write(numbered(3));
    await expect(journal.write(numbered(4, other))).rejects.toMatchObject({ context: { errno: 'ENOSPC' } });
    rmSync(path('files-of-others'));
    await journal.write(numbered(5));
    expect(journal.readiness).toEqual({ ready: true });
    expect(await journal.load()).toEqual([now(5)]);
  });

  test('a full disk keeps no partial record if only a part of the record fits', async () => {
    writeFileSync(path('files-of-others'), Buffer.alloc(4096));
    const large = { ...numbered(2), resizes: ['x'.repeat(6000)] };
    await expect(journal.write(large)).rejects.toMatchObject(unavailable('ENOSPC'));
    expect(await (await open()).load()).toEqual([now(1)]);
    // Space is available again.
    await journal.write(numbered(3));
    expect(await journal.load()).toEqual([now(3)]);
  });
});

describe('a journal on a read-only disk', () => {
  test('a read-only disk rejects writes and removals, is readable, and removes pending records once it is writable', async () => {
    remount('ro');
    await expect(journal.write(numbered(2))).rejects.toMatchObject(unavailable('EROFS'));
    await expect(journal.remove(podUid)).rejects.toMatchObject(unavailable('EROFS'));
    expect((await journal.check()).ready).toBe(false);
    expect(await (await open()).load()).toEqual([now(1)]);
    remount('rw');
    expect(journal.readiness.ready).toBe(false);
    expect(await journal.check()).toEqual({ ready: true });
    // The record whose removal had failed is gone.
    expect(readdirSync(folder)).toEqual([]);
    await journal.write(numbered(3));
    expect(await journal.load()).toEqual([now(3)]);
  });

  test('a read-only disk returns valid records, and keeps an invalid record in place', async () => {
    writeFileSync(path(`${other}.json`), '{');
    remount('ro');
    expect(await journal.load()).toEqual([now(1)]);
    expect(readdirSync(folder).sort()).toEqual([`${podUid}.json`, `${other}.json`]);
    remount('rw');
    expect(await journal.load()).toEqual([now(1)]);
    expect(readdirSync(folder).sort()).toEqual([`${podUid}.json`, `${other}.json.bad`]);
  });
});
