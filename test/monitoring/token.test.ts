import { execFileSync } from 'node:child_process';
import { timingSafeEqual } from 'node:crypto';
import { chmodSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type LogFields, noLog } from '../../src/core/observe/interfaces.ts';
import { TokenFile } from '../../src/monitoring/token.ts';

vi.mock(import('node:crypto'), async (original) => {
  const crypto = await original();
  return { ...crypto, timingSafeEqual: vi.fn(crypto.timingSafeEqual) };
});

const TOKEN = 'hunter2-hunter2-hunter2';
let folder: string;
let path: string;
let log: string[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'token-'));
  path = join(folder, 'token');
  log = [];
  vi.mocked(timingSafeEqual).mockClear();
});
afterEach(() => rmSync(folder, { recursive: true }));

const write = (text: string, mode = 0o600): void => {
  rmSync(path, { force: true });
  writeFileSync(path, text, { mode });
  chmodSync(path, mode);
};
function open(readMs = 0): TokenFile {
  const say = (fields: LogFields, text: string): void => void log.push(`${text} ${JSON.stringify(fields)}`);
  return new TokenFile(path, { ...noLog, info: say, warn: say }, readMs);
}

describe('a token file', () => {
  test.each([
    [`Bearer ${TOKEN}`, 'admitted'],
    [`bearer   ${TOKEN} `, 'admitted'],
    [`Bearer ${TOKEN}x`, 'denied'],
    [`Bearer ${TOKEN.slice(0, -1)}`, 'denied'],
    [`Bearer ${TOKEN.toUpperCase()}`, 'denied'],
    ['Bearer', 'denied'],
    ['Bearer ', 'denied'],
    [`Basic ${TOKEN}`, 'denied'],
    [TOKEN, 'denied'],
    [`Bearer ${'x'.repeat(16_000)}`, 'denied'],
    [undefined, 'denied'],
  ])('a request with the header %s is %s', async (header, admission) => {
    write(`${TOKEN}\n`);
    expect(await open().admits(header)).toBe(admission);
  });

  test('the token is compared in constant time, for any length of the token in a request', async () => {
    write(TOKEN);
    const file = open();
    for (const length of [1, 22, 23, 24, 4000]) await file.admits(`Bearer ${'h'.repeat(length)}`);
    const compared = vi.mocked(timingSafeEqual).mock.calls;
    expect(compared.map(([one, other]) => [one.byteLength, other.byteLength])).toEqual(Array(5).fill([32, 32]));
  });

  test('the token file is read again when it changes, also by a renamed link as in a mounted Secret', async () => {
    write(TOKEN);
    const file = open();
    expect(await file.admits(`Bearer ${TOKEN}`)).toBe('admitted');
    const next = 'another-token-of-the-file';
    writeFileSync(join(folder, 'next'), next, { mode: 0o600 });
    symlinkSync('next', join(folder, 'link'));
    renameSync(join(folder, 'link'), path);
    expect(await file.admits(`Bearer ${TOKEN}`)).toBe('denied');
    expect(await file.admits(`Bearer ${next}`)).toBe('admitted');
  });

  test('the token file is read once for many requests within its cache time', async () => {
    write(TOKEN);
    const file = open(60_000);
    expect(await file.admits(`Bearer ${TOKEN}`)).toBe('admitted');
    rmSync(path);
    expect(await file.admits(`Bearer ${TOKEN}`)).toBe('admitted');
    expect(log).toEqual([]);
  });

  test.each<[string, () => void, string]>([
    ['does not exist', () => undefined, 'it cannot be read (ENOENT)'],
    ['is empty', () => write(''), 'it has no token'],
    ['has a short token', () => write('hunter2'), 'it has no token'],
    ['has two lines', () => write(`${TOKEN}\n${TOKEN}`), 'it has no token'],
    ['is too long', () => write('x'.repeat(5000)), 'it has no token'],
    ['is a folder', () => void (path = folder), 'it is not a file'],
    ['is a pipe', () => void execFileSync('mkfifo', [path]), 'it is not a file'],
    ['is readable by others', () => write(TOKEN, 0o644), 'other users may read or write it'],
    ['is writable by others', () => write(TOKEN, 0o602), 'other users may read or write it'],
  ])('a token file that %s admits nobody, and is logged once without its content', async (_, make, problem) => {
    make();
    const file = open();
    for (const header of [`Bearer ${TOKEN}`, 'Bearer hunter2', undefined])
      expect(await file.admits(header)).toBe('unusable');
    expect(log).toHaveLength(1);
    expect(log[0]).toContain(problem);
    expect(log[0]).not.toContain('hunter2');
  });

  test('a token file that can be used again admits its token, and is logged', async () => {
    const file = open();
    expect(await file.admits(`Bearer ${TOKEN}`)).toBe('unusable');
    write(TOKEN, 0o640);
    expect(await file.admits(`Bearer ${TOKEN}`)).toBe('admitted');
    expect(log.map((line) => line.split(' {')[0])).toEqual([
      'token file of metrics cannot be used; requests are rejected',
      'token file of metrics usable again',
    ]);
  });
});
