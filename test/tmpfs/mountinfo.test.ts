import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { optionOf, parseMountinfo } from '../../src/tmpfs/mountinfo.ts';

describe('parseMountinfo', () => {
  test('reads all fields, with any number of optional fields', () => {
    const [plain, shared] = parseMountinfo(
      '36 35 98:0 / /mnt rw,noatime - tmpfs tmpfs rw,size=65536k,noswap\n' +
        '37 36 0:42 /sub /mnt/a rw shared:7 master:1 propagate_from:2 unbindable - ext4 /dev/vda1 ro,errors=continue\n',
    );
    expect(plain).toEqual({
      id: 36,
      parentId: 35,
      device: '98:0',
      root: '/',
      mountPoint: '/mnt',
      mountOptions: ['rw', 'noatime'],
      fsType: 'tmpfs',
      source: 'tmpfs',
      superOptions: ['rw', 'size=65536k', 'noswap'],
    });
    expect(shared).toMatchObject({
      root: '/sub',
      fsType: 'ext4',
      source: '/dev/vda1',
      superOptions: ['ro', 'errors=continue'],
    });
  });

  test('decodes blanks, tabs, newlines and backslashes in names', () => {
    const [mount] = parseMountinfo(String.raw`1 2 0:3 /a\040b /m\011n\012o\134p\043q rw - tmpfs my\040tmpfs rw`);
    expect(mount).toMatchObject({ root: '/a b', mountPoint: '/m\tn\no\\p#q', source: 'my tmpfs' });
    // A decoded backslash does not begin another escape.
    expect(parseMountinfo(String.raw`1 2 0:3 / /x\134040y rw - tmpfs t rw`)[0]?.mountPoint).toBe(String.raw`/x\040y`);
  });

  test('reads a folder that is named like the separator', () => {
    expect(parseMountinfo('1 2 0:3 - - rw shared:1 - tmpfs - rw')[0]).toMatchObject({
      mountPoint: '-',
      fsType: 'tmpfs',
      source: '-',
    });
  });

  test('reads an empty source', () => {
    expect(parseMountinfo('1 2 0:3 / /x rw - tmpfs  rw,size=1k')[0]).toMatchObject({
      source: '',
      superOptions: ['rw', 'size=1k'],
    });
  });

  test('reads any names that the kernel escapes', () => {
    const escape = (name: string): string =>
      name.replaceAll(/[ \t\n\\#]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, '0')}`);
    const name = fc
      .string({
        unit: fc.constantFrom(' ', '\t', '\n', '\\', '#', '-', ',', '=', '/', 'a', 'é', '☃', '0', '40', ' - '),
      })
      .map((rest) => `/${rest}`);
    const optional = fc.array(fc.constantFrom('shared:1', 'master:2', 'unbindable'), { maxLength: 3 });
    fc.assert(
      fc.property(name, name, optional, (root, mountPoint, fields) => {
        const line = ['1 2 0:3', escape(root), escape(mountPoint), 'rw,nosuid', ...fields, '- tmpfs tmpfs rw'].join(
          ' ',
        );
        expect(parseMountinfo(line)).toEqual([expect.objectContaining({ root, mountPoint, fsType: 'tmpfs' })]);
      }),
    );
  });

  test.each([
    '1 2 0:3 / /x rw shared:1 tmpfs tmpfs rw',
    'x 2 0:3 / /x rw - tmpfs t rw',
    '1 x 0:3 / /x rw - tmpfs t rw',
    '1x 2 0:3 / /x rw - tmpfs t rw',
    'x1 2 0:3 / /x rw - tmpfs t rw',
    '1 2 0:3 / /x rw - tmpfs',
    '1 2 0:3 / /x rw -',
  ])('skips an invalid line: %s', (line) => {
    expect(parseMountinfo(line)).toEqual([]);
    expect(parseMountinfo(line, '0:3')).toEqual([]);
  });

  test('reads a mount without options', () => {
    expect(parseMountinfo('1 2 0:3 / /x  - tmpfs t')[0]).toMatchObject({ mountOptions: [], superOptions: [] });
  });

  test('parseMountinfo with a device returns no mount that has the device only in another field', () => {
    const text = '4 1 0:33 / /x rw - tmpfs 0:3 rw\n5 1 0:3 / /x rw - tmpfs t rw';
    expect(parseMountinfo(text, '0:3').map(({ id }) => id)).toEqual([5]);
  });

  test('skips invalid lines, and does not throw for any text', () => {
    expect(
      parseMountinfo('\n1 2 0:3 / /x rw tmpfs tmpfs rw\nx y 0:3 / /x rw - tmpfs t rw\n1 2 0:3 / /x rw - tmpfs\n'),
    ).toEqual([]);
    fc.assert(fc.property(fc.string(), (text) => void parseMountinfo(text)));
  });

  test('returns all mounts if no device is given, otherwise those of the device', () => {
    const text = [
      '1 0 0:3 / / rw - ext4 /dev/vda rw',
      '2 1 0:33 / /a rw - tmpfs t rw',
      '3 1 0:3 /b /b rw - ext4 /dev/vda rw',
      '4 1 0:33 / /\\0400:3\\040 rw - tmpfs t rw',
    ].join('\n');
    expect(parseMountinfo(text).map(({ id }) => id)).toEqual([1, 2, 3, 4]);
    expect(parseMountinfo(text, '0:3').map(({ id }) => id)).toEqual([1, 3]);
    expect(parseMountinfo(text, '0:33').map(({ id }) => id)).toEqual([2, 4]);
  });

  test('reads all lines of this machine, including the mount of proc', () => {
    const text = readFileSync('/proc/self/mountinfo', 'utf8');
    const mounts = parseMountinfo(text);
    expect(mounts).toHaveLength(text.trim().split('\n').length);
    expect(mounts).toContainEqual(expect.objectContaining({ mountPoint: '/proc', fsType: 'proc' }));
  });
});

describe('optionOf', () => {
  test('optionOf returns the value of the option with exactly this name', () => {
    const options = ['rw', 'size=64k', 'nr_inodes=10', 'mpol=bind:0', 'noswap'];
    expect(optionOf(options, 'size')).toBe('64k');
    expect(optionOf(options, 'inodes')).toBeUndefined();
    expect(optionOf(options, 'noswap')).toBeUndefined();
  });
});
