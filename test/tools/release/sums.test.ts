import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { differing, sumsOf } from '../../../tools/release/sums.ts';

let root: string;
beforeEach(() => (root = mkdtempSync(join(tmpdir(), 'sums-'))));
afterEach(() => rmSync(root, { recursive: true }));

test('sha256sum accepts the checksums, which are sorted by name', async () => {
  const files = ['b', 'a'].map((name) => join(root, name));
  for (const file of files) writeFileSync(file, file);
  const sums = await sumsOf(files);
  writeFileSync(join(root, 'SHA256SUMS'), sums);
  const { stdout } = await execa('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: root });
  expect(stdout).toBe('a: OK\nb: OK');
});

test('reports files that differ between two builds, and files that only one build has', () => {
  const line = (digit: string, name: string): string => `${digit.repeat(64)}  ${name}\n`;
  const one = line('1', 'same') + line('2', 'other') + line('3', 'only-first');
  const two = line('1', 'same') + line('9', 'other') + line('3', 'only-second');
  expect(differing(one, one)).toEqual([]);
  expect(differing(one, two)).toEqual(['other', 'only-first', 'only-second']);
});
