import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Program } from '../../../src/install/host/programs.ts';
import {
  areSameBytes,
  changeOfVersion,
  checkInstallation,
  installedVersion,
  isInPlace,
  placing,
  removingProgram,
} from '../../../src/install/node/program.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let folder: string;

describe('placement of the program', () => {
  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'install-'))));

  afterEach(() => rmSync(folder, { recursive: true }));

  const text = (name: string): string => readFileSync(join(folder, name), 'utf8');

  test.each([
    [['abc', 'def'], ['abcdef'], true],
    [['abcdef'], ['a', '', 'bcde', 'f'], true],
    [[], [], true],
    [['abc', 'def'], ['abcdeg'], false],
    [['abc'], ['abc', 'd'], false],
    [['abcd'], ['abc'], false],
  ])('two streams in different chunks are compared by their bytes: %j, %j', async (one, other, isSame) => {
    const streamOf = (pieces: readonly string[]): Readable => Readable.from(pieces.map((piece) => Buffer.from(piece)));
    expect(await areSameBytes(streamOf(one), streamOf(other))).toBe(isSame);
  });

  const ofFolder = (from: string): Program => ({ kind: 'folder', folder: from, node: '/usr/bin/node', arch: 'x64' });

  /** Creates the files that a program has to have, all with this content. Returns their folder. */
  function program(name: string, content: string): string {
    const root = join(folder, name);
    const koffi = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];
    const files = [
      ...['package.json', 'LICENSE', 'proto/a.proto', 'systemd/a.service', 'dist/chunks/a.js'],
      ...['cri-resize-shim.js', 'resizectl.js', 'resizectl.1', 'resizectl.js.map'].map((file) => `dist/${file}`),
      ...koffi.map((file) => `node_modules/koffi/${file}`),
      'node_modules/@koromix/koffi-linux-x64/koffi.node',
    ];
    for (const file of files) {
      mkdirSync(join(root, file, '..'), { recursive: true });
      writeFileSync(join(root, file), content);
    }
    return root;
  }

  test('placing a program replaces the previous one, and can be rolled back', async () => {
    const [from, to] = [program('new', 'two'), program('there', 'one')];
    const places = { program: ofFolder(from), to };
    expect(await isInPlace(places)).toBe(false);
    const change = placing(places);
    await change.do();
    expect([text('there/dist/resizectl.js'), existsSync(join(to, 'dist/resizectl.js.map'))]).toEqual(['two', false]);
    expect(await isInPlace(places)).toBe(true);
    await change.undo();
    expect(text('there/dist/resizectl.js')).toBe('one');
    expect(readdirSync(folder).toSorted()).toEqual(['new', 'there']);
    await change.do();
    await change.forget?.();
    expect(readdirSync(folder).toSorted()).toEqual(['new', 'there']);
    expect(await isInPlace(places)).toBe(true);
    const off = removingProgram(to);
    await off.do();
    await off.undo();
    expect(text('there/dist/resizectl.js')).toBe('two');
  });

  test('placing a program also copies its Node from another place', async () => {
    const nodeFrom = join(program('new', 'two'), 'package.json');
    const to = join(folder, 'there');
    const places = { program: { ...ofFolder(join(folder, 'new')), node: join(to, 'bin/node'), nodeFrom }, to } as const;
    await placing(places).do();
    expect(text('there/bin/node')).toBe('two');
    expect(await isInPlace(places)).toBe(true);
  });

  test('an incomplete program is not installed, and the previous one stays', async () => {
    const [from, to] = [program('new', 'two'), program('there', 'one')];
    rmSync(join(from, 'dist/cri-resize-shim.js'));
    const change = placing({ program: ofFolder(from), to });
    await expect(change.do()).rejects.toThrow('dist/cri-resize-shim.js');
    await change.undo();
    expect(text('there/dist/resizectl.js')).toBe('one');
    expect(readdirSync(folder).toSorted()).toEqual(['new', 'there']);
  });

  test('the backup of a killed installation counts as the previous program', async () => {
    const from = program('new', 'two');
    program('there.old', 'one');
    const change = placing({ program: ofFolder(from), to: join(folder, 'there') });
    await change.do();
    await change.undo();
    expect(text('there/dist/resizectl.js')).toBe('one');
  });

  test('the single executable and the folder can replace each other', async () => {
    const [from, to] = [program('new', 'two'), join(folder, 'there')];
    const file = join(folder, 'downloaded');
    // Larger than the blocks of the comparison.
    const content = Buffer.alloc(3_000_000, 'node');
    writeFileSync(file, content, { mode: 0o755 });
    const [executable, asFolder] = [
      { program: { kind: 'executable', file } as const, to },
      { program: ofFolder(from), to },
    ];
    await placing(asFolder).do();
    expect(await isInPlace(executable)).toBe(false);
    const change = placing(executable);
    expect(change.description).toBe(`copy the program from ${file} to ${to}`);
    await change.do();
    expect(readdirSync(to, { recursive: true }).toSorted()).toEqual(['bin', 'bin/cri-resize-shim', 'bin/resizectl']);
    expect(readFileSync(join(to, 'bin/resizectl')).equals(content)).toBe(true);
    expect([readlinkSync(join(to, 'bin/resizectl')), statSync(join(to, 'bin/cri-resize-shim')).mode & 0o777]).toEqual([
      'cri-resize-shim',
      0o755,
    ]);
    expect([await isInPlace(executable), await isInPlace(asFolder)]).toEqual([true, false]);
    // The installed executable is in place for itself.
    const installed = { kind: 'executable', file: join(to, 'bin/cri-resize-shim') } as const;
    expect(await isInPlace({ program: installed, to })).toBe(true);
    content.write('deno', 2_500_000);
    writeFileSync(file, content);
    expect(await isInPlace(executable)).toBe(false);
    await change.undo();
    expect([await isInPlace(executable), await isInPlace(asFolder)]).toEqual([false, true]);
  });
});

describe('version of an installed program', () => {
  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'installed-'))));

  afterEach(() => rmSync(folder, { recursive: true }));

  test('the installed version of a folder is read from its package.json', async () => {
    writeFileSync(join(folder, 'package.json'), '{"version": "0.1.0"}');
    expect(await installedVersion(folder)).toBe('0.1.0');
  });

  test('the installed version of a single executable is read from its --version output', async () => {
    mkdirSync(join(folder, 'bin'));
    writeFileSync(join(folder, 'bin/resizectl'), '#!/bin/sh\necho "0.1.5 $1"\n');
    chmodSync(join(folder, 'bin/resizectl'), 0o755);
    expect(await installedVersion(folder)).toBeUndefined();
    writeFileSync(join(folder, 'bin/resizectl'), '#!/bin/sh\n[ "$1" = --version ] && echo 0.1.5\n');
    expect(await installedVersion(folder)).toBe('0.1.5');
  });

  test.each(['', '{}', '{"version": 3}', '{"version": "1.0.0\\u001b[2J"}'])(
    'a folder with the package.json %j has no known version',
    async (text) => {
      writeFileSync(join(folder, 'package.json'), text);
      expect(await installedVersion(folder)).toBeUndefined();
    },
  );

  test.each([
    [undefined, '0.2.0', 'install 0.2.0'],
    ['0.1.0', '0.2.0', 'upgrade 0.1.0 to 0.2.0'],
    ['0.9.0', '0.10.0', 'upgrade 0.9.0 to 0.10.0'],
    ['0.2.0-rc.1', '0.2.0', 'upgrade 0.2.0-rc.1 to 0.2.0'],
    ['0.3.0', '0.2.9', 'downgrade 0.3.0 to 0.2.9'],
    ['0.2.0', '0.2.0', 'another build of 0.2.0'],
  ])('the change of version from %s to %s is described as: %s', (from, to, text) => {
    expect(changeOfVersion(from, to)).toBe(text);
  });
});

describe('owner of an installation', () => {
  let fake: FakeInstallNode;

  beforeEach(() => (fake = new FakeInstallNode()));

  afterEach(() => fake.remove());

  const PROGRAM_FOLDER = 'package.json';
  const EXECUTABLE = 'bin/cri-resize-shim';

  test.each([
    [[], 'ok', 'none'],
    [[`own/cri-resize-shim/${PROGRAM_FOLDER}`], 'ok', 'own'],
    [[`own/cri-resize-shim/${EXECUTABLE}`], 'ok', 'own'],
    [[`package/${PROGRAM_FOLDER}`], 'ok', 'package at '],
    [[`package/${PROGRAM_FOLDER}`, `own/cri-resize-shim/${PROGRAM_FOLDER}`], 'warning', 'two: '],
    [[`package/${PROGRAM_FOLDER}`, `own/cri-resize-shim/${EXECUTABLE}`], 'warning', 'two: '],
  ])('check installation with the files %j is %s: %s', async (files, result, found) => {
    for (const file of files) fake.put(file, '');
    expect(await checkInstallation(fake.at('own'), fake.at('package'))).toMatchObject({
      ...{ check: 'installation', result },
      found: expect.stringContaining(found) as string,
    });
  });
});
