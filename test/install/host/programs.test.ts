import { chmodSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { hasSharedLibraries, nodeProgramOf } from '../../../src/install/host/programs.ts';
import { copyProgram, isInPlace } from '../../../src/install/node/program.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const at = (name: string): string => join(fake.folder, name);

const KOFFI = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];
/** The files of a program without its Node. */
const FILES = [
  ...['package.json', 'LICENSE', 'proto/a.proto', 'systemd/a.socket'],
  ...['cri-resize-shim.js', 'resizectl.js', 'resizectl.1', 'chunks/heap.js'].map((name) => `dist/${name}`),
  ...['node_modules/@koromix/koffi-linux-x64/koffi.node', ...KOFFI.map((name) => `node_modules/koffi/${name}`)],
];

test('a program that includes its own Node.js is installed and started with it', async () => {
  fake.put('from/dist/resizectl.js', '');
  const places = {
    program: { kind: 'folder', folder: at('from'), node: at('to/bin/node'), arch: 'x64' },
    to: at('to'),
  } as const;
  expect(nodeProgramOf(at('from'), at('to'))).toEqual({ node: at('to/bin/node'), nodeFrom: process.execPath });
  for (const file of [...FILES, 'bin/node']) fake.put(`from/${file}`, file);
  chmodSync(at('from/bin/node'), 0o755);
  expect(nodeProgramOf(at('from'), at('to'))).toEqual({ node: at('to/bin/node') });
  await copyProgram(places);
  expect(statSync(at('to/bin/node')).mode & 0o777).toBe(0o755);
  expect(await isInPlace(places)).toBe(true);
  // Different content of the same length.
  fake.put('to/bin/node', 'bin/n0de');
  expect(await isInPlace(places)).toBe(false);
});

test('a program without its own Node is installed with a copy of the running Node that every user can execute', async () => {
  const running = at('home/node');
  fake.put('home/node', 'node');
  chmodSync(running, 0o700);
  const copied = { node: at('to/bin/node'), nodeFrom: running };
  expect(nodeProgramOf(at('from'), at('to'), running, false)).toEqual(copied);
  // The Node of a distribution depends on libraries in other folders.
  expect(nodeProgramOf(at('from'), at('to'), running, true)).toEqual({ node: running });
  // This is resizectl of an existing installation.
  expect(nodeProgramOf(at('to'), at('to'), running, false)).toEqual({ node: running });
  const program = { kind: 'folder', folder: at('from'), ...copied, arch: 'x64' } as const;
  for (const file of FILES) fake.put(`from/${file}`, file);
  await copyProgram({ program, to: at('to') });
  expect(statSync(at('to/bin/node')).mode & 0o777).toBe(0o755);
  expect(await isInPlace({ program, to: at('to') })).toBe(true);
});

test('a Node that loads libraries of its distribution is recognized', () => {
  const own = { node_shared: false, node_shared_openssl: false, icu_gyp_path: 'tools/icu/icu-generic.gyp' };
  const system = { icu_gyp_path: 'tools/icu/icu-system.gyp' };
  expect(
    [own, { node_shared: true }, { ...own, node_shared_openssl: true }, { ...own, ...system }].map(hasSharedLibraries),
  ).toEqual([false, true, true, true]);
});
