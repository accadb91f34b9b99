import { closeSync, fstatSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MAX_OPEN_FILES, OpenFile, OpenFiles } from '../../src/cgroups/open-files.ts';

let folder: string;
/** The names of closed files, in order. */
let closed: string[];
beforeEach(() => {
  closed = [];
  folder = mkdtempSync(join(tmpdir(), 'open-files-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Opens a file. Its name is in `closed` once it has been closed. */
function openFile(name: string): OpenFile {
  const path = join(folder, name);
  writeFileSync(path, '');
  return new OpenFile(openSync(path, 'r'), () => closed.push(name));
}

const isOpen = ({ descriptor }: OpenFile): boolean => {
  try {
    fstatSync(descriptor);
    return true;
  } catch {
    return false;
  }
};

describe('open files', () => {
  test('closes a file that was not read when more files than the limit are open', () => {
    const files = new OpenFiles(2);
    const [a, b, c, d] = [openFile('a'), openFile('b'), openFile('c'), openFile('d')];
    files.keep(a);
    files.keep(b);
    b.isUsed = false;
    files.keep(c);
    expect([a, b, c].map(isOpen)).toEqual([true, false, true]);
    // Nobody has read `a` since.
    c.isUsed = true;
    files.keep(d);
    expect([a, c, d].map(isOpen)).toEqual([false, true, true]);
    expect(closed).toEqual(['b', 'a']);
    files.clear();
    expect([files.size, isOpen(c), isOpen(d)]).toEqual([0, false, false]);
    expect(closed).toEqual(['b', 'a', 'd', 'c']);
  });

  test('closes the oldest file if all have been read', () => {
    const files = new OpenFiles(2);
    const all = [openFile('a'), openFile('b'), openFile('c')];
    for (const file of all) files.keep(file);
    expect(closed).toEqual(['a']);
    files.clear();
  });

  test('forgets a file that cannot be closed: its descriptor may be another file by then', () => {
    const files = new OpenFiles(2);
    const a = openFile('a');
    files.keep(a);
    closeSync(a.descriptor);
    expect(() => files.drop(a)).toThrow(/EBADF/);
    expect([files.size, closed]).toEqual([0, ['a']]);
  });

  test('closes a file once', () => {
    const files = new OpenFiles(2);
    const a = openFile('a');
    files.keep(a);
    files.drop(a);
    files.drop(a);
    expect([isOpen(a), closed]).toEqual([false, ['a']]);
  });

  test('keeps no file open without a share of the descriptors', () => {
    const files = new OpenFiles(0);
    const a = openFile('a');
    files.keep(a);
    expect([files.size, isOpen(a)]).toEqual([0, false]);
  });

  test('keeps at most its share of the descriptors of the process open', () => {
    const files = new OpenFiles();
    for (let count = 0; count < MAX_OPEN_FILES + 10; count += 1) files.keep(openFile('a'));
    expect(files.size).toBeLessThanOrEqual(MAX_OPEN_FILES);
    expect(files.size).toBeGreaterThan(0);
    files.clear();
  });

  test('parses the same content only once', () => {
    const parse = (text: string): { text: string } => ({ text });
    const a = openFile('a');
    a.text = 'max 100000';
    const value = a.parsed(parse);
    expect([value.text, a.parsed(parse)]).toEqual(['max 100000', value]);
    expect(a.parsed(parse)).toBe(value);
    expect(a.parsed((text) => text.length)).toBe(10);
    a.text = '50000 100000';
    expect(a.parsed(parse).text).toBe('50000 100000');
    closeSync(a.descriptor);
  });
});
