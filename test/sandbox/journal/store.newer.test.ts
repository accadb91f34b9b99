import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { RECHECK_MS } from '../../../src/sandbox/journal/availability.ts';
import { readBounded } from '../../../src/sandbox/journal/files.ts';
import type { LoadedRecord, ReadFile } from '../../../src/sandbox/journal/loader.ts';
import { PodJournal } from '../../../src/sandbox/journal/pod-journal.ts';
import { decodeRecord, encodeRecord, RECORD_VERSION } from '../../../src/sandbox/journal/record.ts';
import type { Journal } from '../../../src/sandbox/journal/store.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { numbered, podUid, volumeOf } from '../../support/journal/numbered.ts';
import { ofThisBoot, recordName, TestFolder, uid } from '../../support/journal/test-folder.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let state: TestFolder;

afterEach(() => state.remove());

describe('records of a newer shim', () => {
  const form = (number: number, version: number): string =>
    JSON.stringify({
      ...(JSON.parse(encodeRecord(numbered(number, uid(number)), 'boot-1').toString()) as object),
      version,
    });

  beforeEach(() => {
    state = new TestFolder();
  });

  const fileOf = (index: number): string => `${uid(index)}.json`;

  test('M2: records of a newer shim stay unchanged through a downgrade, regardless of their number, and are reported', async () => {
    await state.open();
    const contents = Array.from({ length: 40 }, (_, index) => form(index, RECORD_VERSION + 1));
    contents.forEach((content, index) => writeFileSync(state.path(fileOf(index)), content));
    const journal = await state.open();
    expect(await journal.load()).toEqual([]);
    const refusal = {
      code: 9,
      reason: 'JOURNAL_UNAVAILABLE',
      message: expect.stringMatching(/is read-only: .* has version 5: .*install the newer shim again/) as string,
      context: { pod: uid(3), file: state.path(fileOf(3)) },
    };
    await expect(journal.write(numbered(3, uid(3)))).rejects.toMatchObject(refusal);
    await expect(journal.remove(uid(3))).rejects.toMatchObject(refusal);
    expect(journal.withheld).toEqual({ newer: 40, unread: 0 });
    expect(state.counters.snapshot().journalFaults).toEqual({ newer_record: 40 });
    expect(state.messages).toEqual(Array.from({ length: 40 }, () => 'journal record of a newer version ignored'));
    // Other pods are not affected.
    await journal.write(numbered(90, uid(90)));
    expect(await journal.check()).toEqual({ ready: true });
    expect(await journal.load()).toEqual([ofThisBoot(numbered(90, uid(90)))]);
    expect(readdirSync(state.folder).sort()).toEqual([...contents.map((_, index) => fileOf(index)), fileOf(90)]);
    expect(contents.map((_, index) => readFileSync(state.path(fileOf(index)), 'utf8'))).toEqual(contents);
  });

  test('KEP-1287: an upgraded shim reads the records that an older shim ignored, without a loss', async () => {
    await state.open();
    for (const index of [1, 2]) writeFileSync(state.path(fileOf(index)), form(index, RECORD_VERSION + 1));
    const older = await state.open();
    expect(await older.load()).toEqual([]);
    await older.write(numbered(3, uid(3)));
    await older.close();
    // Simulates an upgrade to a shim that supports the version of the records.
    for (const index of [1, 2])
      writeFileSync(
        state.path(fileOf(index)),
        readFileSync(state.path(fileOf(index)), 'utf8').replace(`"version":${RECORD_VERSION + 1}`, '"version":4'),
      );
    const newer = await state.open();
    expect(await newer.load()).toEqual([1, 2, 3].map((index) => ofThisBoot(numbered(index, uid(index)))));
    expect(newer.withheld).toEqual({ newer: 0, unread: 0 });
  });

  test('KEP-1287: after the operator removes a record of a newer shim, a new record of the pod is stored', async () => {
    await state.open();
    writeFileSync(state.path(fileOf(1)), form(1, RECORD_VERSION + 1));
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    await journal.load();
    rmSync(state.path(fileOf(1)));
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => journal.withheld, LONG_WAIT).toEqual({ newer: 0, unread: 0 });
    await journal.write(numbered(2, uid(1)));
    expect(await journal.load()).toEqual([ofThisBoot(numbered(2, uid(1)))]);
    await journal.check();
    expect(clock.next).toBeUndefined();
  });

  test('KEP-1287: a record of 0.1.0 (version 3) is read, with its memory.high marked as possibly temporary', () => {
    const { transaction } = decodeRecord(Buffer.from(form(1, 3)));
    expect(transaction?.highs).toEqual([{ cgroup: '/kubepods/pod', memoryHigh: 'max', isUnmarked: true }]);
  });
});

describe('records that cannot be read', () => {
  let clock: FakeClock;
  /** The errors that the disk returns instead of a file. */
  let faults: Map<string, string>;

  beforeEach(() => {
    state = new TestFolder();
    clock = new FakeClock();
    faults = new Map();
  });

  const readFile: ReadFile = (file, max) => {
    const code = faults.get(basename(file));
    if (code === undefined) return readBounded(file, max);
    return Promise.reject(Object.assign(new Error(`${code}: read failed`), { code }));
  };
  /** Returns a journal, and the records that it has loaded late. */
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
      // The disk is available again, but the content of the folder is not known yet.
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
});
