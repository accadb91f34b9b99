import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { assertReplaceable, removing, writing } from '../../../src/install/host/files.ts';

let folder: string;

describe('changed files and their rollback', () => {
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

  /** Runs an xattr system call by Debian's perl: setxattr(2) or getxattr(2), by number on x86-64 and arm64. */
  function xattr(call: 'set' | 'get', path: string): string {
    const number = process.arch === 'arm64' ? { set: 5, get: 8 }[call] : { set: 188, get: 191 }[call];
    const script = `my ($n, $p, $k, $v) = (${number}, $ARGV[0], "user.test", "kept"); syscall($n, $p, $k, $v, 4, 0) < 0 and die "$!"; print $v`;
    return execFileSync('perl', ['-e', script, path], { encoding: 'utf8' });
  }

  describe('L4: a file that is changed and rolled back', () => {
    /** Creates a file with unusual mode and owner. */
    const given = (name: string, content = 'old'): string => {
      const file = join(folder, name);
      writeFileSync(file, content);
      chownSync(file, 12_345, 23_456);
      chmodSync(file, 0o2640);
      return file;
    };
    const rights = (name: string): readonly number[] => {
      const { mode, uid, gid } = lstatSync(join(folder, name));
      return [mode & 0o7777, uid, gid];
    };
    const RIGHTS = [0o2640, 12_345, 23_456];

    test('a file that is changed and rolled back keeps its mode, its owner and its extended attributes', async () => {
      const file = given('a');
      xattr('set', file);
      const change = writing(file, 'new');
      for (const [step, content] of [
        ['do', 'new'],
        ['undo', 'old'],
      ] as const) {
        await change[step]();
        expect(text('a')).toBe(content);
        expect(rights('a')).toEqual(RIGHTS);
        expect(xattr('get', file)).toBe('kept');
        expect(readdirSync(folder)).toEqual(['a']);
      }
    });

    test.each([
      ['a relative link', 'real/file'],
      ['a link through a linked folder', 'linked/file'],
      ['a chain of links', 'real/chain'],
    ])('a file behind %s is changed in its place, and the link stays', async (_, to) => {
      mkdirSync(join(folder, 'real'));
      given('real/file');
      symlinkSync('real', join(folder, 'linked'));
      symlinkSync('../real/file', join(folder, 'real/chain'));
      const link = join(folder, 'link');
      symlinkSync(to, link);
      const change = writing(link, 'new');
      for (const [step, content] of [
        ['do', 'new'],
        ['undo', 'old'],
      ] as const) {
        await change[step]();
        expect(readlinkSync(link)).toBe(to);
        expect(readlinkSync(join(folder, 'real/chain'))).toBe('../real/file');
        expect(text('real/file')).toBe(content);
        expect(rights('real/file')).toEqual(RIGHTS);
        expect(readdirSync(join(folder, 'real')).toSorted()).toEqual(['chain', 'file']);
      }
    });

    test('a file behind a link to nothing is created, and is removed by the rollback', async () => {
      const link = join(folder, 'link');
      symlinkSync('missing/file', link);
      const change = writing(link, 'new');
      await change.do();
      expect([readlinkSync(link), text('missing/file')]).toEqual(['missing/file', 'new']);
      await change.undo();
      expect(readlinkSync(link)).toBe('missing/file');
      expect(readdirSync(folder)).toEqual(['link']);
    });

    test('a link to itself is not changed', async () => {
      symlinkSync('link', join(folder, 'link'));
      const change = writing(join(folder, 'link'), 'new');
      await expect(change.do()).rejects.toThrow('ELOOP');
      await change.undo();
      expect(readdirSync(folder)).toEqual(['link']);
    });

    test('a removed link is a link again after the rollback', async () => {
      given('a');
      symlinkSync('a', join(folder, 'link'));
      const change = removing(join(folder, 'link'));
      await change.do();
      expect(readdirSync(folder)).toEqual(['a']);
      await change.undo();
      expect(readlinkSync(join(folder, 'link'))).toBe('a');
      expect(rights('a')).toEqual(RIGHTS);
    });

    test('a file that cannot be replaced is rolled back without a write', async () => {
      // With this name, the name of the temporary file would be too long.
      const name = 'x'.repeat(250);
      const change = writing(given(name), 'new');
      await expect(change.do()).rejects.toThrow('ENAMETOOLONG');
      await change.undo();
      expect([readdirSync(folder), text(name), rights(name)]).toEqual([[name], 'old', RIGHTS]);
    });
  });
});

describe('files that can be replaced', () => {
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
});
