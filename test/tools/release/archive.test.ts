import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { packFolder } from '../../../tools/release/archive.ts';

let root: string;
beforeEach(() => (root = mkdtempSync(join(tmpdir(), 'archive-'))));
afterEach(() => rmSync(root, { recursive: true }));

/** Creates the same files in another order, at another time, with other rights of others. */
function folder(name: string, order: readonly string[], mode: number): string {
  const path = join(root, name, 'shim');
  mkdirSync(path, { recursive: true });
  for (const [index, file] of order.entries()) {
    writeFileSync(join(path, file), `content of ${file}`);
    utimesSync(join(path, file), index, index);
    chmodSync(join(path, file), file === 'run' ? mode | 0o111 : mode);
  }
  return path;
}

test('archives of equal files are identical, regardless of the order of files, the time and the umask', async () => {
  const [one, other] = [join(root, 'one.tgz'), join(root, 'other.tgz')];
  await packFolder(folder('first', ['a', 'b', 'run'], 0o644), one, '1700000000');
  await packFolder(folder('second', ['run', 'b', 'a'], 0o600), other, '1700000000');
  expect(readFileSync(one).equals(readFileSync(other))).toBe(true);
  const { stdout } = await execa('tar', ['--list', '--verbose', '--numeric-owner', '--utc', '--file', one]);
  const [, a, , run] = stdout.split('\n');
  expect(a).toMatch(/^-rw-r--r-- 0\/0 +12 2023-11-14 22:13 shim\/a$/);
  expect(run).toMatch(/^-rwxr-xr-x 0\/0 +14 2023-11-14 22:13 shim\/run$/);
});

test('an archive of other content has other bytes, and no temporary file is left next to it', async () => {
  const [one, other] = [join(root, 'one.tgz'), join(root, 'other.tgz')];
  const path = folder('first', ['a'], 0o644);
  await packFolder(path, one, '1700000000');
  writeFileSync(join(path, 'a'), 'Content of a');
  await packFolder(path, other, '1700000000');
  expect(readFileSync(one).equals(readFileSync(other))).toBe(false);
  await expect(execa('ls', [root])).resolves.toMatchObject({ stdout: 'first\none.tgz\nother.tgz' });
});
