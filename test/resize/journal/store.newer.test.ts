import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Journal } from '../../../src/resize/journal/store.ts';
import { decodeRecord, encodeRecord } from '../../../src/resize/journal/record.ts';
import { numbered, numberIn } from '../../support/journal/numbered.ts';

const uid = (index: number): string => `1b4e28ba-2fa1-11d2-883f-${String(index).padStart(12, '0')}`;
const open = (): Promise<Journal> => Journal.open(folder, { bootId: 'boot' });
const form = (number: number, version: number): string =>
  JSON.stringify({
    ...(JSON.parse(encodeRecord(numbered(number, uid(number)), 'boot').toString()) as object),
    version,
  });

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'journal-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

test('records of a newer shim are never removed, however many', async () => {
  const contents = Array.from({ length: 40 }, (_, index) => form(index, 5));
  contents.forEach((content, index) => writeFileSync(join(folder, `${uid(index)}.json`), content));
  const journal = await open();
  expect(await journal.load()).toEqual([]);
  // A record of the same pod, and its removal, leave the newer one.
  await journal.write(numbered(3, uid(3)));
  await journal.remove(uid(3));
  expect(await journal.load()).toEqual([]);
  await journal.close();
  expect(readdirSync(folder).sort()).toEqual(contents.map((_, index) => `${uid(index)}.json.newer`));
  expect(contents.map((_, index) => readFileSync(join(folder, `${uid(index)}.json.newer`), 'utf8'))).toEqual(contents);
});

test('a shim that reads their version gets them back, unless the older shim has written a record since', async () => {
  for (const index of [1, 2]) writeFileSync(join(folder, `${uid(index)}.json.newer`), form(index, 4));
  const journal = await open();
  await journal.write(numbered(7, uid(2)));
  expect((await journal.load()).map(numberIn).sort()).toEqual([1, 7]);
  expect((await journal.load()).map(numberIn).sort()).toEqual([1, 7]);
  await journal.close();
  expect(readdirSync(folder).sort()).toEqual([`${uid(1)}.json`, `${uid(2)}.json`]);
});

test('a record of 0.1.0 (version 3) is read: any lower memory.high may be its temporary one', () => {
  const { transaction } = decodeRecord(Buffer.from(form(1, 3)));
  expect(transaction?.highs).toEqual([{ cgroup: '/kubepods/pod', memoryHigh: 'max', isUnmarked: true }]);
});
