import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { RECORD_VERSION, decodeRecord, encodeRecord } from '../../../src/sandbox/journal/record.ts';
import { RECHECK_MS } from '../../../src/sandbox/journal/availability.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { FakeClock } from '../../support/resize/fake-resizes.ts';
import { numbered } from '../../support/journal/numbered.ts';
import { TestFolder, ofThisBoot, uid } from '../../support/journal/test-folder.ts';

const form = (number: number, version: number): string =>
  JSON.stringify({
    ...(JSON.parse(encodeRecord(numbered(number, uid(number)), 'boot-1').toString()) as object),
    version,
  });

let state: TestFolder;
beforeEach(() => {
  state = new TestFolder();
});
afterEach(() => state.remove());

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
  // The upgrade: a shim whose version is theirs.
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
