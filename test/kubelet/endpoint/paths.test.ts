import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { seenBy } from '../../../src/kubelet/endpoint/paths.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'view-'));
  for (const folder of ['data/kubelet', 'var/lib', 'cwd']) mkdirSync(join(root, folder), { recursive: true });
  writeFileSync(join(root, 'data/kubelet/config.yaml'), '');
});
afterEach(() => rmSync(root, { recursive: true }));

const seen = async (file: string, isFollowed?: boolean): Promise<string> => {
  const path = await seenBy({ root, cwd: join(root, 'cwd') }, file, isFollowed);
  return path.startsWith(root) ? path.slice(root.length) : path;
};
const link = (to: string, from: string): void => symlinkSync(to, join(root, from));

test.each([
  ['absolute', '/data/kubelet'],
  ['relative', '../../data/kubelet'],
  ['above the root', '../../../../../data/kubelet'],
])('a link whose target is %s stays in the root of the process', async (_, to) => {
  link(to, 'var/lib/kubelet');
  expect(await seen('/var/lib/kubelet/config.yaml')).toBe('/data/kubelet/config.yaml');
  expect(await seen('/var/lib/kubelet/missing/x')).toBe('/data/kubelet/missing/x');
});

test('follows a link to another link, also at the end of a path unless the caller disables that', async () => {
  link('/var/lib/second', 'var/lib/kubelet');
  link('/data/./kubelet/', 'var/lib/second');
  link('/var/lib/kubelet/config.yaml', 'cwd/config.yaml');
  expect(await seen('/cwd/config.yaml')).toBe('/data/kubelet/config.yaml');
  expect(await seen('/cwd/config.yaml', false)).toBe('/cwd/config.yaml');
  expect(await seen('/var/lib/kubelet/../kubelet/config.yaml', false)).toBe('/data/kubelet/config.yaml');
});

test('a relative path is resolved in the working directory of the process', async () => {
  link('/data', 'cwd/data');
  expect(await seen('./data/kubelet/config.yaml')).toBe('/data/kubelet/config.yaml');
  expect(await seen('../data/kubelet/config.yaml')).toBe('/data/kubelet/config.yaml');
});

test('returns a path in our own root unresolved, because the kernel follows its links', async () => {
  expect(await seenBy({ root: '', cwd: '/proc/42/cwd' }, '/a/b')).toBe('/a/b');
  expect(await seenBy({ root: '', cwd: '/proc/42/cwd' }, 'a/b')).toBe('/proc/42/cwd/a/b');
});

test('a link to itself is an error', async () => {
  link('/var/lib/kubelet', 'var/lib/kubelet');
  await expect(seen('/var/lib/kubelet/config.yaml')).rejects.toThrow('ELOOP');
});
