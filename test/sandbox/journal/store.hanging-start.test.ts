import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { ANSWER_MS, LONGEST_CHANGE_MS, RECHECK_MS } from '../../../src/sandbox/journal/availability.ts';
import type * as Files from '../../../src/sandbox/journal/files.ts';
import { readBounded } from '../../../src/sandbox/journal/files.ts';
import type { ReadFile } from '../../../src/sandbox/journal/loader.ts';
import { PodJournal } from '../../../src/sandbox/journal/pod-journal.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { numbered, podUid, volumeOf } from '../../support/journal/numbered.ts';
import { recordName, TestFolder } from '../../support/journal/test-folder.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

/** The operations that hang, and the callbacks of those that wait. */
const disk = { hangs: { write: false, read: false }, waiting: new Set<() => void>() };
const unlessHanging = (kind: 'write' | 'read'): Promise<void> =>
  disk.hangs[kind] ? new Promise((resolve) => void disk.waiting.add(resolve)) : Promise.resolve();
/** The disk answers again. */
function answer(): void {
  disk.hangs = { write: false, read: false };
  for (const resolve of disk.waiting) resolve();
  disk.waiting.clear();
}
vi.mock('../../../src/sandbox/journal/files.ts', async (original) => {
  const files = await original<typeof Files>();
  return {
    ...files,
    writeThrough: async (...given: Parameters<typeof files.writeThrough>) => {
      await unlessHanging('write');
      return files.writeThrough(...given);
    },
    replaceFile: async (...given: Parameters<typeof files.replaceFile>) => {
      await unlessHanging('write');
      return files.replaceFile(...given);
    },
  };
});
const readFile: ReadFile = async (file, max) => {
  await unlessHanging('read');
  return readBounded(file, max);
};

let state: TestFolder;
let clock: FakeClock;
beforeEach(async () => {
  state = new TestFolder();
  clock = new FakeClock();
  const before = await state.open();
  await before.write(numbered(1));
  await before.close();
});
afterEach(async () => {
  answer();
  await state.remove();
});

const pod = { sandboxId: 'sandbox-1', metadata: { uid: podUid } } as PodDescription;
const volumes = new Map([['other', volumeOf(9)]]);
const started = (): PodJournal => new PodJournal(state.open({ clock, readFile }));
/** Lets time pass while the disk does not answer, for as long as the journal waits. */
async function pass(ms: number): Promise<void> {
  await expect.poll(() => clock.next, LONG_WAIT).toBe(ms);
  clock.pass(ms);
}
const onDisk = (): unknown => JSON.parse(readFileSync(state.path(recordName), 'utf8'));

test('a disk that hangs at the first write delays no caller for longer than a change, and the records are known', async () => {
  disk.hangs.write = true;
  const journal = started();
  await pass(ANSWER_MS);
  await journal.restored();
  expect(journal.transactionOf(pod)).toMatchObject({ id: 't1' });
  expect(await journal.readiness()).toMatchObject({
    ready: false,
    error: { reason: 'JOURNAL_UNAVAILABLE', message: expect.stringContaining('longer than 2000 ms') as string },
  });
  expect(state.messages).toEqual(['journal unavailable']);
  const change = journal.setVolumes(pod, volumes);
  const rejected = expect(change).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
  await expect.poll(() => disk.waiting.size, LONG_WAIT).toBe(2);
  clock.pass(LONGEST_CHANGE_MS);
  await rejected;
  answer();
  await expect.poll(() => journal.readiness(), LONG_WAIT).toEqual({ ready: true });
});

test('changes are rejected while the disk does not return the records, which are loaded once it does', async () => {
  disk.hangs.read = true;
  const journal = started();
  const late: unknown[] = [];
  journal.onLate((pods) => void late.push(...pods));
  await pass(LONGEST_CHANGE_MS - ANSWER_MS);
  await journal.restored();
  expect(journal.isReadOnly(pod)).toBe(true);
  expect(journal.transactionOf(pod)).toBeUndefined();
  expect(await journal.readiness()).toMatchObject({ ready: false, error: { reason: 'JOURNAL_UNAVAILABLE' } });
  await expect(journal.setVolumes(pod, volumes)).rejects.toMatchObject({
    reason: 'JOURNAL_UNAVAILABLE',
    message: expect.stringContaining('longer than 3000 ms') as string,
  });
  await expect(journal.begin(pod, [], { volumes })).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
  expect(late).toEqual([]);

  answer();
  await expect.poll(() => late, LONG_WAIT).toMatchObject([{ podUid }]);
  expect(journal.transactionOf(pod)).toMatchObject({ id: 't1' });
  await journal.setVolumes(pod, volumes);
  expect(onDisk()).toMatchObject({ transaction: { id: 't1' }, volumes: { other: { source: 'asked' } } });
  expect(await journal.readiness()).toEqual({ ready: true });
});

test('the checks of a disk that does not return the records wait for one read', async () => {
  disk.hangs.read = true;
  const journal = started();
  await expect.poll(() => disk.waiting.size, LONG_WAIT).toBe(1);
  await pass(LONGEST_CHANGE_MS - ANSWER_MS);
  await journal.restored();
  await pass(RECHECK_MS);
  await journal.readiness();
  expect(disk.waiting.size).toBe(1);
  answer();
  await expect.poll(() => journal.readiness(), LONG_WAIT).toEqual({ ready: true });
  expect(journal.identities()).toMatchObject([{ podUid }]);
  expect(state.messages).toEqual([
    'journal unavailable',
    'journal records read that were withheld before',
    'journal writable again',
  ]);
});
