import { lstatSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { assertReplaceable, writing } from '../../../src/install/host/files.ts';

// test/e2e/systemd/operator.test.ts has the immutable attribute, which not every file system has.
let folder: string;
let mounts: string[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'writable '));
  mounts = [];
});
afterEach(async () => {
  for (const mount of mounts) await execa('umount', [mount]);
  rmSync(folder, { recursive: true });
});

const at = (name: string): string => join(folder, name);

async function mount(...args: readonly string[]): Promise<void> {
  await execa('mount', args);
  mounts.unshift(args.at(-1)!);
}

test('a file can be replaced, or created in a folder that does not exist', async () => {
  writeFileSync(at('file'), '');
  for (const name of ['file', 'none', 'no/such/folder/file']) await assertReplaceable(at(name));
});

test('the target of a masked unit, /dev/null, cannot be replaced and stays a device', async () => {
  symlinkSync('/dev/null', at('masked.service'));
  const text = '/dev/null is not a regular file, so it is not replaced: unmask the unit (systemctl unmask)';
  await expect(assertReplaceable('/dev/null')).rejects.toThrow(text);
  const change = writing(at('masked.service'), 'text');
  await expect(change.probe?.()).rejects.toThrow(text);
  await expect(change.do()).rejects.toThrow(text);
  await change.undo();
  expect(lstatSync('/dev/null').isCharacterDevice()).toBe(true);
});

test.runIf(process.getuid?.() === 0)(
  'a mount point, or a file on a read-only file system, cannot be replaced',
  async () => {
    writeFileSync(at('bound'), '');
    mkdirSync(at('read-only'));
    await mount('--bind', at('bound'), at('bound'));
    await mount('-t', 'tmpfs', 'tmpfs', at('read-only'));
    await expect(assertReplaceable(at('bound'))).rejects.toThrow(`${at('bound')} is a mount of its own`);
    await expect(assertReplaceable(at('read-only'))).rejects.toThrow('is a mount of its own');
    await assertReplaceable(at('read-only/file'));
    await execa('mount', ['-o', 'remount,ro', at('read-only')]);
    for (const name of ['read-only/file', 'read-only/no/such/file'])
      await expect(assertReplaceable(at(name))).rejects.toThrow(
        `${at('read-only')} cannot be written: its file system is read-only`,
      );
  },
);
