import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { queryRuntime } from '../../../src/install/host/query-runtime.ts';
import { CriClient } from '../../support/cri/client.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import { isSystemdNode } from '../../support/cri/pod-cgroup.ts';
import {
  CONFIG,
  CONTAINERD,
  calledThrough,
  failedCalls,
  OURS,
  property,
  removePackage,
  startKubelet,
  states,
  stopKubelet,
  UNITS,
} from '../../support/e2e/kubelet-unit.ts';
import { podWithVolume, resizesThrough } from '../../support/e2e/served.ts';
import { ResizeClient } from '../../support/resize-api/client.ts';
import { madeExecutable } from '../../tools/packaging/made.ts';

/** The single executable on a node: only this file is copied there, and it installs everything else. */

// On a node where systemd is the first process: npm run node -- --init systemd

const [SERVICE = ''] = UNITS;
const ALONE = '/opt/alone';
const DOWNLOADED = `${ALONE}/cri-resize-shim`;
const INSTALLED = '/usr/local/lib/cri-resize-shim';
/** Found in PATH after the installation. */
const RESIZECTL = 'resizectl';
const sockets = { cri: '/run/cri-resize-shim/cri-resize-shim.sock', resize: '/run/cri-resize-shim/resize.sock' };

const direct = new CriClient(CONTAINERD);
/** Has a volume for the whole test, so that the shim determines how it remounts volumes. */
let pod: RunningPod;

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  mkdirSync(ALONE);
  copyFileSync((await madeExecutable()).executable, DOWNLOADED);
  pod = await podWithVolume(direct, 'web');
});
afterAll(async () => {
  await run(DOWNLOADED, 'resizectl', 'uninstall');
  await stopKubelet();
  await pod.remove();
  direct.close();
  rmSync(ALONE, { recursive: true });
});

interface Ended {
  readonly text: string;
  readonly code: number | undefined;
}

async function run(command: string, ...args: readonly string[]): Promise<Ended> {
  const { all, exitCode } = await execa(command, args, { reject: false, all: true, cwd: '/' });
  return { text: all, code: exitCode };
}

/** The program of the process that systemd has started. */
const programThatRuns = async (): Promise<string> => readlinkSync(`/proc/${await property(SERVICE, 'MainPID')}/exe`);

/** Waits until the shim has surveyed the volumes. */
async function volumesAre(socket: string, said: RegExp): Promise<void> {
  const says = async (): Promise<string | undefined> =>
    (await queryRuntime(socket)).shim?.checks.find(({ name }) => name === 'volumes')?.says;
  await expect.poll(says, { timeout: 30_000, interval: 200 }).toMatch(/^remounted /);
  expect(await says()).toMatch(said);
}

test('upgrade: the executable installs itself, serves under the hardened unit, and remounts by system calls', async () => {
  await startKubelet(`--config=${CONFIG}`);
  const installed = await run(DOWNLOADED, 'resizectl', 'install');
  expect(installed, installed.text).toMatchObject({ code: 0 });
  expect(installed.text).toContain(`done: copy the program from ${DOWNLOADED} to ${INSTALLED}\n`);
  expect(readdirSync(INSTALLED, { recursive: true }).toSorted()).toEqual([
    ...['bin', 'bin/cri-resize-shim', 'bin/resizectl'],
  ]);
  await calledThrough(OURS);
  expect(await states()).toEqual(['active', 'active', 'active']);
  expect(failedCalls().length).toBeLessThanOrEqual(1);
  expect(await programThatRuns()).toBe(`${INSTALLED}/bin/cri-resize-shim`);
  // The executable notifies systemd with libc's sendto, and is hardened like the folder installation.
  expect(await property(SERVICE, 'StatusText')).toBe(`serving ${sockets.cri}`);
  const status = readFileSync(`/proc/${await property(SERVICE, 'MainPID')}/status`, 'utf8');
  expect(status).toMatch(/^Seccomp:\t2$/m);
  expect(status).toMatch(/^CapEff:\t000000000020000b$/m);

  await resizesThrough(direct, { ...sockets, name: 'alone' });
  await volumesAre(sockets.cri, /^remounted by system calls$/);
  expect((await run(RESIZECTL, 'doctor')).text).toMatch(/^kubelet +ok +uses the shim/m);
  expect((await run(RESIZECTL, 'get', 'pods')).text).toMatch(/^default +web /m);
  const again = await run(RESIZECTL, 'install');
  expect(again.text).not.toMatch(/^done:/m);
  expect(again.code, again.text).toBe(0);
});

test('upgrade: the folder installation replaces the executable and vice versa, without a kubelet restart or a failed call', async () => {
  const [kubelet, failed] = [await property('kubelet.service', 'MainPID'), failedCalls().length];
  const folder = await run(process.execPath, resolve('dist/resizectl.js'), 'install');
  expect(folder, folder.text).toMatchObject({ code: 0 });
  // A copy of the Node that runs this test, which npm has installed into this checkout.
  expect(await programThatRuns()).toBe(`${INSTALLED}/bin/node`);
  expect((await run(RESIZECTL, 'version')).text).toMatch(/ answers/);
  expect([existsSync(`${INSTALLED}/bin/cri-resize-shim`), existsSync(`${INSTALLED}/dist`)]).toEqual([false, true]);
  await calledThrough(OURS);

  const executable = await run(DOWNLOADED, 'resizectl', 'install');
  expect(executable, executable.text).toMatchObject({ code: 0 });
  expect(await programThatRuns()).toBe(`${INSTALLED}/bin/cri-resize-shim`);
  expect([existsSync(`${INSTALLED}/bin`), existsSync(`${INSTALLED}/dist`)]).toEqual([true, false]);
  await calledThrough(OURS);
  expect(await property('kubelet.service', 'MainPID')).toBe(kubelet);
  expect(failedCalls().length).toBe(failed);
});

test('install: the executable uninstalls itself, and kubelet uses containerd again', async () => {
  const off = await run(RESIZECTL, 'uninstall');
  expect(off, off.text).toMatchObject({ code: 0 });
  await calledThrough(CONTAINERD);
  expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);
  expect(existsSync(INSTALLED)).toBe(false);
});

/** Runs the executable with folders mounted noexec, as on hardened machines. */
async function withNoexec(
  folders: readonly string[],
  then: (served: { readonly cri: string; readonly resize: string }) => Promise<void>,
): Promise<void> {
  const served = { cri: '/run/noexec/cri.sock', resize: '/run/noexec/resize.sock' };
  const flags = ['--listen', served.cri, '--resize-listen', served.resize, '--state-folder', `${ALONE}/state`];
  const mounts = folders.map((at) => `mount --bind ${at} ${at} && mount -o remount,bind,noexec ${at}`);
  const script = [...mounts, `exec ${DOWNLOADED} "$@"`].join(' && ');
  const shim = execa('unshare', ['--mount', 'sh', '-c', script, 'sh', ...flags], { reject: false, cwd: '/' });
  try {
    await new Promise<void>((resolve, reject) => {
      shim.stderr.on('data', (text: Buffer) => String(text).includes('"serving"') && resolve());
      void shim.then(({ stderr }) => reject(new Error(`the shim has exited: ${stderr}`)));
    });
    await then(served);
  } finally {
    shim.kill('SIGTERM');
  }
  expect(await shim).toMatchObject({ exitCode: 0 });
}

test('upgrade: the native part of the executable is loaded from the state folder if /run, /dev/shm and /tmp are noexec', async () => {
  mkdirSync('/var/lib/cri-resize-shim', { recursive: true });
  await withNoexec(['/run', '/dev/shm', '/tmp'], async ({ cri }) => {
    await volumesAre(cri, /^remounted by system calls$/);
  });
});

test('upgrade: the executable remounts volumes by mount(8) and reports the reason if every folder is noexec', async () => {
  mkdirSync('/var/lib/cri-resize-shim', { recursive: true });
  await withNoexec(['/run', '/dev/shm', '/tmp', '/var/lib/cri-resize-shim'], async ({ cri, resize }) => {
    await volumesAre(
      cri,
      /^remounted by mount\(8\): koffi\.node cannot be loaded from the executable: \/run: .*; \/dev\/shm: .*; \/var\/lib\/cri-resize-shim: .*; \/tmp: .*failed to map segment/,
    );
    const api = new ResizeClient(resize);
    await api.call('ResizePod', { pod: { uid: pod.uid }, volumes: { cache: '80Mi' } });
    expect(pod.volume('cache').size).toBe(80 * MiB);
    api.close();
  });
});
