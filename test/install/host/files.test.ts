import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removing, writing } from '../../../src/install/host/files.ts';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'install-'))));
afterEach(() => rmSync(folder, { recursive: true }));

const text = (name: string): string => readFileSync(join(folder, name), 'utf8');

test('writing an existing file keeps its mode; rolling back restores content and mode', async () => {
  const file = join(folder, 'a.yaml');
  writeFileSync(file, 'old');
  chmodSync(file, 0o640);
  const change = writing(file, 'new');
  await change.do();
  expect([text('a.yaml'), statSync(file).mode & 0o777]).toEqual(['new', 0o640]);
  await change.undo();
  expect([text('a.yaml'), statSync(file).mode & 0o777]).toEqual(['old', 0o640]);
  expect(readdirSync(folder)).toEqual(['a.yaml']);
});

test('rolling back a new file removes it and its new folders, unless they have other files', async () => {
  const change = writing(join(folder, 'b/c/d'), 'new');
  await change.do();
  expect(statSync(join(folder, 'b/c/d')).mode & 0o777).toBe(0o644);
  await change.undo();
  expect(readdirSync(folder)).toEqual([]);
  await change.do();
  writeFileSync(join(folder, 'b/else'), '');
  await change.undo();
  expect(readdirSync(join(folder, 'b'))).toEqual(['else']);
});

test('a file that cannot be written leaves nothing to roll back', async () => {
  mkdirSync(join(folder, 'a'));
  const change = writing(join(folder, 'a'), 'new');
  await expect(change.do()).rejects.toThrow('EISDIR');
  await change.undo();
  expect(readdirSync(folder)).toEqual(['a']);
});

test('rolling back a removal restores the file', async () => {
  writeFileSync(join(folder, 'a'), 'old');
  const change = removing(join(folder, 'a'));
  await change.do();
  expect(existsSync(join(folder, 'a'))).toBe(false);
  await change.undo();
  expect(text('a')).toBe('old');
});
