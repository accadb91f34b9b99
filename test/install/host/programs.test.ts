import { chmodSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { copyProgram, isInPlace } from '../../../src/install/node/program.ts';
import { nodeProgramOf } from '../../../src/install/host/programs.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const at = (name: string): string => join(fake.folder, name);

test('a program with its own Node is installed and started with it', async () => {
  fake.put('from/dist/resizectl.js', '');
  const places = {
    program: { kind: 'folder', folder: at('from'), node: at('to/bin/node'), arch: 'x64' },
    to: at('to'),
  } as const;
  expect(nodeProgramOf(at('from'), at('to'))).toEqual({ node: process.execPath });
  const files = ['cri-resize-shim.js', 'resizectl.1', 'chunks/heap.js'].map((name) => `dist/${name}`);
  const koffi = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];
  const all = [
    ...['package.json', 'LICENSE', 'proto/a.proto', 'systemd/a.socket', 'bin/node', ...files],
    ...['node_modules/@koromix/koffi-linux-x64/koffi.node', ...koffi.map((name) => `node_modules/koffi/${name}`)],
  ];
  for (const file of all) fake.put(`from/${file}`, file);
  chmodSync(at('from/bin/node'), 0o755);
  expect(nodeProgramOf(at('from'), at('to'))).toEqual({ node: at('to/bin/node') });
  await copyProgram(places);
  expect(statSync(at('to/bin/node')).mode & 0o777).toBe(0o755);
  expect(await isInPlace(places)).toBe(true);
  // Different content of the same length.
  fake.put('to/bin/node', 'bin/n0de');
  expect(await isInPlace(places)).toBe(false);
});

test('a checkout is installed with the Node of its npm package if that one runs it', () => {
  const pinned = at(`from/node_modules/node-linux-${process.arch}/bin/node`);
  expect(nodeProgramOf(at('from'), at('to'), pinned)).toEqual({ node: at('to/bin/node'), nodeFrom: pinned });
  expect(nodeProgramOf(at('from'), at('to'), '/usr/bin/node')).toEqual({ node: '/usr/bin/node' });
});
