import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { State } from './state.ts';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'nightly-'));
  file = join(folder, 'of/results.json');
});
afterEach(() => rmSync(folder, { recursive: true }));

const result = (failed: number) => ({ passed: 3, failed, seconds: 60, date: '2026-11-23' });

test('a continued run knows which stages have passed at its commit, and runs failed ones again', () => {
  const first = State.read(file, 'abc');
  first.add('crash', result(0));
  first.add('soak', result(1));
  const second = State.read(file, 'abc');
  expect(['crash', 'soak', 'fuzz'].map((name) => second.hasPassed(name))).toEqual([true, false, false]);
  expect(existsSync(`${file}.new`)).toBe(false);
});

test('results of another commit do not count', () => {
  State.read(file, 'abc').add('crash', result(0));
  const other = State.read(file, 'def');
  expect(other.hasPassed('crash')).toBe(false);
  other.add('soak', result(0));
  expect(State.read(file, 'def').results).toEqual({ soak: result(0) });
});

test('a file that has no results is not overwritten', () => {
  writeFileSync(join(folder, 'notes'), 'mine');
  expect(() => State.read(join(folder, 'notes'), 'abc')).toThrow(
    `${join(folder, 'notes')} is no file of nightly results`,
  );
  expect(readFileSync(join(folder, 'notes'), 'utf8')).toBe('mine');
});
