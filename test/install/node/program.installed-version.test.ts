import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { changeOfVersion, installedVersion } from '../../../src/install/node/program.ts';

let folder: string;
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
