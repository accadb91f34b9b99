import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { isSameSocket, seenBy, socketPathOf } from '../../../src/kubelet/endpoint/paths.ts';

describe('paths below the root of a process', () => {
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
});

describe('socket addresses', () => {
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
});
