import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { numbered, podUid } from '../../support/journal/numbered.ts';
import { Journal } from '../../../src/resize/journal/store.ts';

// Disks that are full or read-only, in earnest: a tmpfs of a few pages, as root.
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

describe('a full disk', () => {
  test('refuses a record and keeps the one before; with room again all goes on', async () => {
    writeFileSync(path('other-peoples-files'), Buffer.alloc(8192));
    const before = readFileSync(path(`${podUid}.json`));
    for (let attempt = 0; attempt < 3; attempt += 1)
      await expect(journal.write(numbered(2))).rejects.toMatchObject(unavailable('ENOSPC'));
    expect(journal.readiness).toMatchObject({ ready: false, error: unavailable('ENOSPC') });
    expect((await journal.check()).ready).toBe(false);
    expect(readFileSync(path(`${podUid}.json`)).equals(before)).toBe(true);
    expect(readdirSync(folder).sort()).toEqual([`${podUid}.json`, 'other-peoples-files']);
    const restarted = await open();
    expect(restarted.readiness).toMatchObject({ ready: false, error: { context: { errno: 'ENOSPC' } } });
    expect(await restarted.load()).toEqual([now(1)]);

    // A transaction that was under way may end: its record goes, and that makes room.
    await journal.remove(podUid);
    expect(journal.readiness.ready).toBe(false);
    expect((await journal.check()).ready).toBe(true);
    await journal.write(numbered(3));
    await expect(journal.write(numbered(4, other))).rejects.toMatchObject({ context: { errno: 'ENOSPC' } });
    rmSync(path('other-peoples-files'));
    await journal.write(numbered(5));
    expect(journal.readiness).toEqual({ ready: true });
    expect(await journal.load()).toEqual([now(5)]);
  });

  test('of which half a record would fit keeps no half', async () => {
    writeFileSync(path('other-peoples-files'), Buffer.alloc(4096));
    const large = { ...numbered(2), resizes: ['x'.repeat(6000)] };
    await expect(journal.write(large)).rejects.toMatchObject(unavailable('ENOSPC'));
    expect(await (await open()).load()).toEqual([now(1)]);
    // the room is there again
    await journal.write(numbered(3));
    expect(await journal.load()).toEqual([now(3)]);
  });
});

describe('a read-only disk', () => {
  test('refuses records and removals, gives what it has, and is caught up with once it is writable', async () => {
    remount('ro');
    await expect(journal.write(numbered(2))).rejects.toMatchObject(unavailable('EROFS'));
    await expect(journal.remove(podUid)).rejects.toMatchObject(unavailable('EROFS'));
    expect((await journal.check()).ready).toBe(false);
    expect(await (await open()).load()).toEqual([now(1)]);
    remount('rw');
    expect(journal.readiness.ready).toBe(false);
    expect(await journal.check()).toEqual({ ready: true });
    // what could not be removed is gone now
    expect(readdirSync(folder)).toEqual([]);
    await journal.write(numbered(3));
    expect(await journal.load()).toEqual([now(3)]);
  });

  test('with a bad record on it is read past it, and the record stays where it is', async () => {
    writeFileSync(path(`${other}.json`), '{');
    remount('ro');
    expect(await journal.load()).toEqual([now(1)]);
    expect(readdirSync(folder).sort()).toEqual([`${podUid}.json`, `${other}.json`]);
    remount('rw');
    expect(await journal.load()).toEqual([now(1)]);
    expect(readdirSync(folder).sort()).toEqual([`${podUid}.json`, `${other}.json.bad`]);
  });
});
