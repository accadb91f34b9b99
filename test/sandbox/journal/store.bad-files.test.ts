import { execFileSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { numbered, podUid } from '../../support/journal/numbered.ts';
import { TestFolder, ofThisBoot, recordName, uid } from '../../support/journal/test-folder.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

let state: TestFolder;
beforeEach(() => {
  state = new TestFolder();
});
afterEach(() => state.remove());

describe('a bad journal file', () => {
  const bad: [string, () => void][] = [
    ['empty', () => writeFileSync(state.path(recordName), '')],
    ['of an earlier version', () => writeFileSync(state.path(recordName), '{"version":2}')],
    ['of another pod', () => renameSync(state.path(`${uid(2)}.json`), state.path(recordName))],
    ['too large', () => truncateSync(state.path(recordName), MiB + 1)],
    ['a folder', () => mkdirSync(state.path(recordName))],
    ['a symbolic link to a valid file', () => symlinkSync(state.path(`${uid(2)}.json`), state.path(recordName))],
    ['a dangling symbolic link', () => symlinkSync('/nothing', state.path(recordName))],
    ['a pipe', () => void execFileSync('mkfifo', [state.path(recordName)])],
  ];
  test.each(bad)(
    'a journal file that is %s is renamed, counted and logged once, and the other files are read',
    async (_, makeBad) => {
      const journal = await state.open();
      await journal.write(numbered(1));
      await journal.write(numbered(2, uid(2)));
      await journal.write(numbered(3, uid(3)));
      if (!makeBad.toString().includes('truncate')) rmSync(state.path(recordName));
      makeBad();
      expect(await journal.load()).toContainEqual(ofThisBoot(numbered(3, uid(3))));
      expect(await journal.load()).toContainEqual(ofThisBoot(numbered(3, uid(3))));
      expect(existsSync(state.path(recordName))).toBe(false);
      expect(lstatSync(state.path(`${recordName}.bad`))).toBeDefined();
      expect(state.counters.snapshot().journalFaults).toEqual({ bad_record: 1 });
      expect(state.logged).toEqual([
        {
          level: 'error',
          fields: { file: state.path(recordName), error: expect.any(String) as unknown, movedTo: `${recordName}.bad` },
          message: 'journal record unreadable',
        },
      ]);
      await state.closeAll();
      expect(state.descriptors()).toEqual([]);
      expect(journal.readiness.ready).toBe(true);
      // Opens the folder again, so the journal is closed: Node ends a process that leaves this to garbage collection.
      await journal.write(numbered(4));
      expect(await journal.load()).toContainEqual(ofThisBoot(numbered(4)));
      await journal.close();
    },
  );

  test('a journal file that is truncated at any byte is not read, and does not fail the load', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    const content = readFileSync(state.path(recordName));
    for (let length = 0; length <= content.length; length += 1) {
      writeFileSync(state.path(recordName), content.subarray(0, length));
      expect(await journal.load()).toEqual(length >= content.length - 1 ? [ofThisBoot(numbered(1))] : []);
    }
    expect(state.counters.snapshot().journalFaults).toEqual({ bad_record: content.length - 1 });
    expect(readdirSync(state.folder).sort()).toEqual([recordName, `${recordName}.bad`]);
    expect(state.logged).toHaveLength(1);
  });

  test('bad journal files are stored under another name, up to the newest sixteen of them', async () => {
    const journal = await state.open();
    for (let index = 0; index < 30; index += 1) {
      writeFileSync(state.path(`${uid(index)}.json`), `${index}`);
      await journal.load();
    }
    const left = readdirSync(state.folder);
    expect(left.sort()).toEqual(Array.from({ length: 16 }, (_, index) => `${uid(index + 14)}.json.bad`));
    expect(readFileSync(state.path(`${uid(20)}.json.bad`), 'utf8')).toBe('20');
  });

  test('a temporary journal file left by a crash is removed at load', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    writeFileSync(state.path(`${recordName}.tmp`), 'half');
    writeFileSync(state.path(`${uid(2)}.json.tmp`), 'half');
    expect(await journal.load()).toEqual([ofThisBoot(numbered(1))]);
    expect(readdirSync(state.folder)).toEqual([recordName]);
  });

  test('a temporary journal file left by a crash does not prevent a write or its retry', async () => {
    const journal = await state.open();
    for (const leave of [
      (name: string) => writeFileSync(name, 'x'.repeat(100_000)),
      (name: string) => symlinkSync(join(state.base, 'elsewhere'), name),
    ]) {
      leave(state.path(`${recordName}.tmp`));
      await journal.write(numbered(1)).catch(() => journal.write(numbered(1)));
      expect(await journal.load()).toEqual([ofThisBoot(numbered(1))]);
      await journal.remove(podUid);
    }
    expect(readdirSync(state.base)).toEqual(['state']);
  });
});
