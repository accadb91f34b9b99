import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removing, writing } from '../../../src/install/node/files.ts';
import { isInPlace, placing, removingProgram } from '../../../src/install/node/program.ts';
import type { Program } from '../../../src/install/node/programs.ts';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'install-'))));
afterEach(() => rmSync(folder, { recursive: true }));

const text = (name: string): string => readFileSync(join(folder, name), 'utf8');

test('a file that is there keeps its mode, and comes back as it was', async () => {
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

test('a new one goes again, with the folders that were made for it, unless there is more in them', async () => {
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

test('one that cannot be written leaves what was there, and its undoing has nothing to do', async () => {
  mkdirSync(join(folder, 'a'));
  const change = writing(join(folder, 'a'), 'new');
  await expect(change.do()).rejects.toThrow('EISDIR');
  await change.undo();
  expect(readdirSync(folder)).toEqual(['a']);
});

test('what is removed comes back', async () => {
  writeFileSync(join(folder, 'a'), 'old');
  const change = removing(join(folder, 'a'));
  await change.do();
  expect(existsSync(join(folder, 'a'))).toBe(false);
  await change.undo();
  expect(text('a')).toBe('old');
});

const ofFolder = (from: string): Program => ({ kind: 'folder', folder: from, node: '/usr/bin/node', arch: 'x64' });

/** All that a program has to have, in little. */
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

test('the program: swapped in, back, and for good', async () => {
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

test('the program with a Node that its folder has elsewhere', async () => {
  const nodeFrom = join(program('new', 'two'), 'package.json');
  const to = join(folder, 'there');
  const places = { program: { ...ofFolder(join(folder, 'new')), node: join(to, 'bin/node'), nodeFrom }, to } as const;
  await placing(places).do();
  expect(text('there/bin/node')).toBe('two');
  expect(await isInPlace(places)).toBe(true);
});

test('one that is not whole is not installed, and what is there stays', async () => {
  const [from, to] = [program('new', 'two'), program('there', 'one')];
  rmSync(join(from, 'dist/cri-resize-shim.js'));
  const change = placing({ program: ofFolder(from), to });
  await expect(change.do()).rejects.toThrow('dist/cri-resize-shim.js');
  await change.undo();
  expect(text('there/dist/resizectl.js')).toBe('one');
  expect(readdirSync(folder).toSorted()).toEqual(['new', 'there']);
});

test('what an installation that was killed has set aside is the program', async () => {
  const from = program('new', 'two');
  program('there.old', 'one');
  const change = placing({ program: ofFolder(from), to: join(folder, 'there') });
  await change.do();
  await change.undo();
  expect(text('there/dist/resizectl.js')).toBe('one');
});

test('the single executable takes the place of the folder, and the folder that of the executable', async () => {
  const [from, to] = [program('new', 'two'), join(folder, 'there')];
  const file = join(folder, 'downloaded');
  // More than is compared at once.
  const content = Buffer.alloc(3_000_000, 'node');
  writeFileSync(file, content, { mode: 0o755 });
  const [one, other] = [
    { program: { kind: 'executable', file } as const, to },
    { program: ofFolder(from), to },
  ];
  await placing(other).do();
  expect(await isInPlace(one)).toBe(false);
  const change = placing(one);
  expect(change.says).toBe(`copy the program from ${file} to ${to}`);
  await change.do();
  expect(readdirSync(to, { recursive: true }).toSorted()).toEqual(['bin', 'bin/cri-resize-shim', 'bin/resizectl']);
  expect(readFileSync(join(to, 'bin/resizectl')).equals(content)).toBe(true);
  expect([readlinkSync(join(to, 'bin/resizectl')), statSync(join(to, 'bin/cri-resize-shim')).mode & 0o777]).toEqual([
    'cri-resize-shim',
    0o755,
  ]);
  expect([await isInPlace(one), await isInPlace(other)]).toEqual([true, false]);
  // As it is when it runs from there.
  const installed = { kind: 'executable', file: join(to, 'bin/cri-resize-shim') } as const;
  expect(await isInPlace({ program: installed, to })).toBe(true);
  content.write('deno', 2_500_000);
  writeFileSync(file, content);
  expect(await isInPlace(one)).toBe(false);
  await change.undo();
  expect([await isInPlace(one), await isInPlace(other)]).toEqual([false, true]);
});
