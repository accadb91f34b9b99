import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type InstallLock, takeInstallLock } from '../../../src/install/host/install-lock.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'lock-'));
  file = join(folder, 'lock');
});
afterEach(() => rmSync(folder, { recursive: true }));

async function held(): Promise<InstallLock> {
  const lock = await takeInstallLock(file);
  if (lock.kind !== 'held') throw new Error(`locked by ${lock.pid}`);
  return lock;
}

test('one process holds the lock, and its process id is known to the others', async () => {
  const first = await held();
  expect(await takeInstallLock(file)).toEqual({ kind: 'locked', pid: process.pid });
  await first.release();
  await (await held()).release();
});

test('the lock of a process that was killed is free', async () => {
  const module = join(process.cwd(), 'src/install/host/install-lock.ts');
  const script = `const { takeInstallLock } = await import(${JSON.stringify(module)});
const { kind } = await takeInstallLock(${JSON.stringify(file)});
console.log(kind);
setInterval(() => undefined, 1e6);`;
  const other = execa('node', ['--input-type=module', '--eval', script], { reject: false, preferLocal: true });
  const said = await new Promise((resolve) => other.stdout.once('data', (data: Buffer) => resolve(String(data))));
  expect(said).toBe('held\n');
  expect(await takeInstallLock(file)).toEqual({ kind: 'locked', pid: other.pid });
  other.kill('SIGKILL');
  await other;
  // cat sees the end of the pipe after the process has ended.
  await expect.poll(async () => (await takeInstallLock(file)).kind, LONG_WAIT).toBe('held');
});

test('a lock file that cannot be locked is an error and does not count as a running installation', async () => {
  await expect(takeInstallLock(join(folder, 'none/lock'))).rejects.toThrow('cannot be locked: flock: cannot open');
});
