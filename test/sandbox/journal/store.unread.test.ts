import { readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { readBounded } from '../../../src/sandbox/journal/files.ts';
import type { ReadFile, LoadedRecord } from '../../../src/sandbox/journal/loader.ts';
import { RECHECK_MS } from '../../../src/sandbox/journal/availability.ts';
import { PodJournal } from '../../../src/sandbox/journal/pod-journal.ts';
import type { Journal } from '../../../src/sandbox/journal/store.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { FakeClock } from '../../support/resize/fake-resizes.ts';
import { numbered, podUid, volumeOf } from '../../support/journal/numbered.ts';
import { TestFolder, ofThisBoot, recordName, uid } from '../../support/journal/test-folder.ts';

let state: TestFolder;
let clock: FakeClock;
/** The errors that the disk returns instead of a file. */
let faults: Map<string, string>;
beforeEach(() => {
  state = new TestFolder();
  clock = new FakeClock();
  faults = new Map();
});
afterEach(() => state.remove());

const readFile: ReadFile = (file, max) => {
  const code = faults.get(basename(file));
  if (code === undefined) return readBounded(file, max);
  return Promise.reject(Object.assign(new Error(`${code}: read failed`), { code }));
};
/** Returns a journal with the records that it has got late. */
async function opened(): Promise<{ journal: Journal; late: LoadedRecord[] }> {
  const journal = await state.open({ clock, readFile });
  const late: LoadedRecord[] = [];
  journal.onLate((records) => void late.push(...records));
  return { journal, late };
}
async function withTwoRecords(): Promise<void> {
  const journal = await state.open();
  await journal.write(numbered(1));
  await journal.write(numbered(2, uid(2)));
  await journal.close();
}

describe.each(['EIO', 'EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN', 'EACCES', 'EUCLEAN', 'ESTALE'])(
  'a record that cannot be read because of %s',
  (code) => {
    test('KEP-1287: a record that the disk does not return stays unchanged, is reported, and is read again until it is readable', async () => {
      await withTwoRecords();
      const before = readFileSync(state.path(recordName), 'utf8');
      faults.set(recordName, code);
      const { journal, late } = await opened();
      expect(await journal.load()).toEqual([ofThisBoot(numbered(2, uid(2)))]);
      const refusal = {
        code: 9,
        reason: 'JOURNAL_UNAVAILABLE',
        message: expect.stringMatching(`is read-only: .* cannot be read: ${code}.*reads the file again`) as string,
        context: { pod: podUid, file: state.path(recordName) },
      };
      await expect(journal.write(numbered(3))).rejects.toMatchObject(refusal);
      await expect(journal.remove(podUid)).rejects.toMatchObject(refusal);
      await journal.write(numbered(4, uid(2)));
      for (const tries of [2, 3]) {
        expect(clock.pass(RECHECK_MS)).toBe(1);
        await expect.poll(() => state.counters.snapshot().journalFaults, LONG_WAIT).toEqual({ unread_record: tries });
        await expect.poll(() => clock.next, LONG_WAIT).toBe(RECHECK_MS);
        expect(journal.withheld).toEqual({ newer: 0, unread: 1 });
      }
      expect(readdirSync(state.folder).sort()).toEqual([recordName, `${uid(2)}.json`].sort());
      expect(readFileSync(state.path(recordName), 'utf8')).toBe(before);
      expect(state.messages).toEqual(['journal record not readable at present']);
      expect(late).toEqual([]);

      faults.clear();
      expect(clock.pass(RECHECK_MS)).toBe(1);
      await expect.poll(() => late, LONG_WAIT).toEqual([ofThisBoot(numbered(1))]);
      expect(journal.withheld).toEqual({ newer: 0, unread: 0 });
      await journal.write(numbered(5));
      expect((await journal.load()).map(({ podUid }) => podUid).sort()).toEqual([podUid, uid(2)].sort());
      await journal.check();
      expect(clock.next).toBeUndefined();
    });
  },
);

test('KEP-1287: a record that turns out to be bad or missing when it is read again is no longer withheld', async () => {
  await withTwoRecords();
  for (const name of [recordName, `${uid(2)}.json`]) faults.set(name, 'EIO');
  const { journal, late } = await opened();
  expect(await journal.load()).toEqual([]);
  faults.clear();
  writeFileSync(state.path(recordName), '{');
  faults.set(`${uid(2)}.json`, 'ENOENT');
  await journal.check();
  expect(journal.withheld).toEqual({ newer: 0, unread: 0 });
  expect(late).toEqual([]);
  expect(readdirSync(state.folder)).toContain(`${recordName}.bad`);
});

test('a record that is readable again is loaded before it can be changed, even while the disk hangs at the next one', async () => {
  const request = { version: 1, kind: 'of a test' };
  const before = await state.open();
  for (const number of [1, 2]) await before.write({ ...numbered(number, uid(number)), resizes: [request] });
  await before.close();
  for (const number of [1, 2]) faults.set(`${uid(number)}.json`, 'EIO');
  let answer = (): void => undefined;
  const hanging: ReadFile = async (file, max) => {
    if (faults.size === 0 && basename(file) === `${uid(2)}.json`)
      await new Promise<void>((resolve) => (answer = resolve));
    return readFile(file, max);
  };
  const journal = await state.open({ clock, readFile: hanging });
  const pods = new PodJournal(Promise.resolve(journal));
  const late: string[] = [];
  pods.onLate((known) => void late.push(...known.map(({ podUid: uidOf }) => uidOf)));
  await pods.restored();
  faults.clear();
  clock.pass(RECHECK_MS);
  await expect.poll(() => journal.withheld.unread, LONG_WAIT).toBe(1);
  expect(late).toEqual([uid(1)]);
  const pod = { sandboxId: 'sandbox-1', metadata: { uid: uid(1) } } as PodDescription;
  await pods.setVolumes(pod, new Map([['other', volumeOf(9)]]));
  const written: unknown = JSON.parse(readFileSync(state.path(`${uid(1)}.json`), 'utf8'));
  expect(written).toMatchObject({ transaction: { startedAt: 1 }, resizes: [request], volumes: { other: {} } });
  answer();
  await expect.poll(() => journal.withheld.unread, LONG_WAIT).toBe(0);
  expect(late).toEqual([uid(1), uid(2)]);
  expect([...pods.volumesOf(pod).keys()]).toEqual(['other']);
});

describe('a state folder that cannot be read at the start', () => {
  test('KEP-1287: no record is written or removed until an unreadable state folder is readable and its records are read', async () => {
    await withTwoRecords();
    renameSync(state.folder, `${state.folder}-away`);
    writeFileSync(state.folder, '');
    const { journal, late } = await opened();
    expect(await journal.load()).toEqual([]);
    rmSync(state.folder);
    renameSync(`${state.folder}-away`, state.folder);
    // The disk is back, but nobody knows yet what is in the folder.
    await expect(journal.write(numbered(3))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    await expect(journal.remove(uid(2))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => late, LONG_WAIT).toEqual([ofThisBoot(numbered(2, uid(2))), ofThisBoot(numbered(1))]);
    expect(await journal.check()).toEqual({ ready: true });
    await journal.write(numbered(4));
    expect(clock.next).toBeUndefined();
  });

  test('a state folder that can be written but not read is not ready', async () => {
    await withTwoRecords();
    const { journal } = await opened();
    vi.spyOn(process, 'geteuid').mockReturnValue(4242);
    expect(await journal.load()).toEqual([]);
    expect((await journal.check()).ready).toBe(false);
    vi.restoreAllMocks();
    expect((await journal.check()).ready).toBe(true);
    expect(journal.refusal(podUid)).toBeUndefined();
  });
});
