import { execFileSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { CheckpointFile } from '../../src/kubelet/checkpoint-file.ts';

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'checkpoint-file-'));
  path = join(folder, 'state');
});
afterEach(() => rmSync(folder, { recursive: true }));

const replace = (text: string): void => {
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
};

test('a checkpoint file is read once for each of its versions', () => {
  const file = new CheckpointFile(path);
  expect(file.result()).toEqual({ kind: 'unchanged' });
  replace('one');
  expect(file.result()).toEqual({ kind: 'text', text: 'one' });
  expect(file.result()).toEqual({ kind: 'unchanged' });
  replace('two');
  expect(file.result()).toEqual({ kind: 'text', text: 'two' });
  replace('two');
  expect(file.result()).toEqual({ kind: 'unchanged' });
  truncateSync(path);
  expect(file.result()).toEqual({ kind: 'text', text: '' });
  rmSync(path);
  expect(file.result()).toEqual({ kind: 'absent' });
  expect(file.result()).toEqual({ kind: 'unchanged' });
  replace('two');
  expect(file.result()).toEqual({ kind: 'text', text: 'two' });
});

test('a change of a checkpoint file is recognized even if its size and modification time are equal', () => {
  const file = new CheckpointFile(path);
  for (let n = 100; n < 400; n += 1) {
    writeFileSync(path, String(n));
    utimesSync(path, 1, 1);
    expect(file.result()).toEqual({ kind: 'text', text: String(n) });
  }
});

test('a checkpoint that is not a file or is too large is reported once, and a pipe does not block', () => {
  const file = new CheckpointFile(path);
  mkdirSync(path);
  expect(file.result()).toEqual({ kind: 'unreadable', why: 'it is not a regular file' });
  expect(file.result()).toEqual({ kind: 'unchanged' });
  rmSync(path, { recursive: true });
  execFileSync('mkfifo', [path]);
  expect(file.result()).toEqual({ kind: 'unchanged' });
  rmSync(path);
  expect(file.result()).toEqual({ kind: 'absent' });
  writeFileSync(path, '');
  truncateSync(path, 16 * MiB + 1);
  expect(file.result()).toEqual({
    kind: 'unreadable',
    why: 'it has 16777217 bytes, more than the maximum of 16777216',
  });
  rmSync(path);
  symlinkSync(path, path);
  expect(file.result()).toMatchObject({ kind: 'unreadable' });
  rmSync(path);
  replace('good');
  expect(file.result()).toEqual({ kind: 'text', text: 'good' });
});
