import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isSameSocket, socketPathOf } from '../../../src/kubelet/endpoint/paths.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'socket-'));
  mkdirSync(join(folder, 'run'));
  symlinkSync(join(folder, 'run'), join(folder, 'var-run'));
});
afterEach(() => rmSync(folder, { recursive: true }));
const same = (one: string, other: string): Promise<boolean> =>
  isSameSocket(`unix://${folder}/${one}`, `${folder}/${other}`);

test('the path of a socket address has no unix:// or unix: prefix', () => {
  expect(['unix:///a.sock', 'unix:/a.sock', '/a.sock'].map(socketPathOf)).toEqual(['/a.sock', '/a.sock', '/a.sock']);
});

test('recognizes a socket through a link to a folder, whether the socket exists or not', async () => {
  expect(await same('run/shim/cri.sock', 'var-run/shim/cri.sock')).toBe(true);
  expect(await same('run/shim/cri.sock', 'var-run/shim/other.sock')).toBe(false);
  mkdirSync(join(folder, 'run/shim'));
  expect(await same('run/shim/cri.sock', 'var-run/shim/cri.sock')).toBe(true);
  writeFileSync(join(folder, 'run/shim/cri.sock'), '');
  expect(await same('run/shim/cri.sock', 'var-run/shim/cri.sock')).toBe(true);
  expect(await isSameSocket('unix:///var/run/cri.sock', '/var/run/cri.sock')).toBe(true);
});

test('an endpoint that is not an absolute path is compared as text', async () => {
  expect(await isSameSocket('', '/cri.sock')).toBe(false);
  expect(await isSameSocket('npipe:x', 'npipe:x')).toBe(true);
});
