import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { ResizeClient, refusal } from '../../support/resize-api/client.ts';

// Records of a newer shim, and records that the disk does not return, across restarts of the shim.
const RESIZE = '/run/cri-resize-shim/resize.sock';
const METRICS = '/run/cri-resize-shim/metrics.sock';
const resources = { memory_limit_in_bytes: 64 * MiB };

let state: string;
let shim: ShimProcess;
const direct = new CriClient('unix:///run/containerd/containerd.sock');
let cri: CriClient;
let api: ResizeClient;
const pods: RunningPod[] = [];

async function start(): Promise<void> {
  shim = await ShimProcess.start({
    args: ['--resize-listen', RESIZE, '--metrics-bind', `unix://${METRICS}`, '--state-folder', state],
  });
  cri = new CriClient(shim.address);
  api = new ResizeClient(RESIZE);
  await shim.waitForLog(({ msg }) => msg === 'recovery finished');
}
async function stop(): Promise<void> {
  cri.close();
  api.close();
  expect(await shim.stop()).toBe(0);
}
beforeEach(async () => {
  state = mkdtempSync(join(tmpdir(), 'withheld-'));
  await start();
});
afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
  await stop();
  rmSync(state, { recursive: true });
});

afterAll(() => direct.close());

/** Makes a pod with a deferred request, and so with a record. */
async function deferredPod(): Promise<RunningPod> {
  // Creates the pod directly, because the shim is restarted.
  const pod = await runPod(direct, {
    name: 'web',
    containers: [{ name: 'a', command: ['sleep', '1000000'], resources, mounts: { cache: '/cache' } }],
    volumes: [{ name: 'cache', size: 32 * MiB }],
  });
  pods.push(pod);
  await cri.exec(pod.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
  await api.call('ResizePod', { pod: { uid: pod.uid }, volumes: { cache: '16Mi' }, defer: true });
  return pod;
}
const fileOf = (pod: RunningPod): string => join(state, `${pod.uid}.json`);
const grow = (pod: RunningPod, memory: string): Promise<unknown> =>
  api.call('ResizePod', { pod: { uid: pod.uid }, containers: { a: { limits: { memory } } } });
async function doctor(): Promise<string> {
  const { stdout } = await execa('node', ['dist/resizectl.js', 'doctor'], { reject: false });
  return stdout;
}
const metrics = async (): Promise<string> =>
  (await execa('curl', ['-s', '--unix-socket', METRICS, 'http://shim/metrics'])).stdout;

test('KEP-1287: a record of a newer shim is ignored and reported, and works again after the upgrade', async () => {
  const pod = await deferredPod();
  const other = await deferredPod();
  await stop();
  const ours = readFileSync(fileOf(pod), 'utf8');
  const newer = ours.replace('"version":4', '"version":5');
  expect(newer).not.toBe(ours);
  writeFileSync(fileOf(pod), newer);
  await start();
  expect(await refusal(grow(pod, '80Mi'))).toMatchObject({ code: 9, reason: 'JOURNAL_UNAVAILABLE' });
  const update = cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: 80 * MiB });
  expect(await refusal(update)).toMatchObject({ code: 9, reason: 'JOURNAL_UNAVAILABLE' });
  await grow(other, '80Mi');
  expect([pod, other].map((each) => each.read('memory.max', 'a'))).toEqual([String(64 * MiB), String(80 * MiB)]);
  expect(await doctor()).toMatch(/^shim +warning +serves .*, ready, with limits: records: .*1 of a newer version/m);
  const page = await metrics();
  expect(page).toContain('cri_resize_shim_journal_faults_total{fault="newer_record"} 1\n');
  expect(page).toContain('cri_resize_shim_ready{check="records"} 0\n');
  expect(shim.log).toContainEqual(
    expect.objectContaining({ level: 'error', msg: 'journal record of a newer version ignored', file: fileOf(pod) }),
  );
  await stop();
  expect(readFileSync(fileOf(pod), 'utf8')).toBe(newer);
  expect(readdirSync(state).sort()).toEqual([`${pod.uid}.json`, `${other.uid}.json`].sort());
  writeFileSync(fileOf(pod), ours);
  await start();
  // The deferred request is there again.
  await cri.exec(pod.id('a'), 'rm', '/cache/file');
  await expect.poll(() => pod.volume('cache').size, { timeout: 60_000 }).toBe(16 * MiB);
  await grow(pod, '80Mi');
});

test('KEP-1287: a record that the disk does not return is ignored, and its requests continue once it is readable', async () => {
  const pod = await deferredPod();
  await stop();
  const before = readFileSync(fileOf(pod), 'utf8');
  // Address 0 of a process is not mapped: reading it is EIO (proc_pid_mem(5)).
  execFileSync('mount', ['--bind', '/proc/1/mem', fileOf(pod)]);
  try {
    await start();
    expect(await refusal(grow(pod, '80Mi'))).toMatchObject({ code: 9, reason: 'JOURNAL_UNAVAILABLE' });
    expect(await doctor()).toMatch(/^shim +warning +serves .*records: .*1 that the disk does not return/m);
    expect(await metrics()).toMatch(/journal_faults_total\{fault="unread_record"\} [1-9]/);
    expect(shim.log).toContainEqual(
      expect.objectContaining({
        msg: 'journal record not readable at present',
        error: expect.stringContaining('EIO') as string,
      }),
    );
  } finally {
    execFileSync('umount', [fileOf(pod)]);
  }
  expect(readFileSync(fileOf(pod), 'utf8')).toBe(before);
  expect(readdirSync(state)).toEqual([`${pod.uid}.json`]);
  await shim.waitForLog(({ msg }) => msg === 'journal records read that were withheld before');
  await cri.exec(pod.id('a'), 'rm', '/cache/file');
  await expect.poll(() => pod.volume('cache').size, { timeout: 60_000 }).toBe(16 * MiB);
  await grow(pod, '80Mi');
  expect(await doctor()).toMatch(/^shim +ok +serves .*, ready$/m);
});
