import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { lastBypassTarget, takeBypassFiles, writeBypassTarget } from '../../../src/core/systemd/bypass.ts';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'bypass-'))));
afterEach(() => rmSync(folder, { recursive: true }));

test('each start writes the socket of containerd for the bypass, and leaves no temporary file', async () => {
  const file = join(folder, 'target');
  await writeBypassTarget(file, '/run/containerd/containerd.sock', noLog);
  expect(readFileSync(file, 'utf8')).toBe('CRI_RESIZE_SHIM_BYPASS_TO="/run/containerd/containerd.sock"\n');
  await writeBypassTarget(file, '/run/a "b"/$c\\d.sock', noLog);
  expect(readFileSync(file, 'utf8')).toBe('CRI_RESIZE_SHIM_BYPASS_TO="/run/a \\"b\\"/\\$c\\\\d.sock"\n');
  expect(readdirSync(folder)).toEqual(['target']);
  const { ino } = statSync(file);
  await writeBypassTarget(file, '/run/a "b"/$c\\d.sock', noLog);
  expect(statSync(file).ino).toBe(ino);
});

test('the socket of the last start is read as it was written for the bypass', async () => {
  const file = join(folder, 'target');
  const env = { CRI_RESIZE_SHIM_BYPASS_FILE: file };
  expect(await lastBypassTarget(env)).toBeUndefined();
  expect(await lastBypassTarget({})).toBeUndefined();
  for (const socket of ['/run/containerd/containerd.sock', '/run/a "b"/$c\\d`.sock']) {
    await writeBypassTarget(file, socket, noLog);
    expect(await lastBypassTarget(env)).toBe(socket);
  }
  for (const text of ['something else\n', 'CRI_RESIZE_SHIM_BYPASS_TO="relative.sock"\n']) {
    writeFileSync(file, text);
    expect(await lastBypassTarget(env)).toBeUndefined();
  }
  expect(env).toEqual({ CRI_RESIZE_SHIM_BYPASS_FILE: file });
});

test('a bypass file that cannot be written is logged, and the shim continues', async () => {
  const logged: string[] = [];
  const log = { ...noLog, warn: (_fields: object, message: string) => void logged.push(message) };
  await writeBypassTarget(join(folder, 'none/target'), '/run/containerd/containerd.sock', log);
  await writeBypassTarget(undefined, '/run/containerd/containerd.sock', log);
  expect(logged).toEqual(['socket of containerd not written for the bypass']);
});

test('the variables for the bypass are not passed on to child processes', () => {
  const env = { CRI_RESIZE_SHIM_BYPASS_FILE: '/a', CRI_RESIZE_SHIM_BYPASS_STATE: '/b', PATH: '/bin' };
  expect(takeBypassFiles(env)).toEqual({ target: '/a', state: '/b' });
  expect(env).toEqual({ PATH: '/bin' });
});
