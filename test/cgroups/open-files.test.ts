import { closeSync, fstatSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MAX_OPEN_FILES, OpenFiles } from '../../src/cgroups/open-files.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'open-files-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function openFile(name: string): { readonly path: string; readonly descriptor: number } {
  const path = join(folder, name);
  writeFileSync(path, '');
  return { path, descriptor: openSync(path, 'r') };
}

const isOpen = (descriptor: number): boolean => {
  try {
    fstatSync(descriptor);
    return true;
  } catch {
    return false;
  }
};

describe('open files', () => {
  test('closes the least recently used file when more files than the limit are open', () => {
    const files = new OpenFiles(2);
    const [a, b, c] = [openFile('a'), openFile('b'), openFile('c')];
    files.keep(a.path, a.descriptor);
    files.keep(b.path, b.descriptor);
    expect(files.get(a.path)).toBe(a.descriptor);
    files.keep(c.path, c.descriptor);
    expect([a, b, c].map(({ descriptor }) => isOpen(descriptor))).toEqual([true, false, true]);
    expect(files.get(b.path)).toBeUndefined();
    files.clear();
    expect([files.size, isOpen(a.descriptor), isOpen(c.descriptor)]).toEqual([0, false, false]);
  });

  test('closes an open file when another descriptor of its path replaces it', () => {
    const files = new OpenFiles(2);
    const first = openFile('a');
    const second = openSync(first.path, 'r');
    files.keep(first.path, first.descriptor);
    files.keep(first.path, second);
    expect([isOpen(first.descriptor), files.get(first.path)]).toEqual([false, second]);
    files.drop(first.path);
    expect(isOpen(second)).toBe(false);
  });

  test('keeps no file open without a share of the descriptors', () => {
    const files = new OpenFiles(0);
    const { path, descriptor } = openFile('a');
    files.keep(path, descriptor);
    expect([files.size, isOpen(descriptor)]).toEqual([0, false]);
  });

  test('keeps at most its share of the descriptors of the process open', () => {
    const files = new OpenFiles();
    const { path, descriptor } = openFile('a');
    for (let count = 0; count < MAX_OPEN_FILES + 10; count += 1) files.keep(`${path}${count}`, openSync(path, 'r'));
    expect(files.size).toBeLessThanOrEqual(MAX_OPEN_FILES);
    expect(files.size).toBeGreaterThan(0);
    files.clear();
    closeSync(descriptor);
  });
});
