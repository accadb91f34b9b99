import { mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { CriClient, type Resources } from '../cri/client.ts';
import { type RunningPod, runPod } from '../cri/pod.ts';
import { ShimProcess } from '../cri/shim.ts';
import { ResizeClient, refusal } from '../server/resize-api-client.ts';
import { LimitWatcher } from '../e2e/watcher.ts';

const MI = 1024 * 1024;
const SLEEP = ['sleep', '1000000'];
const RESIZE = '/run/cri-resize-shim/resize.sock';
const state = mkdtempSync(join(tmpdir(), 'state-'));
const ARGS = ['--resize-listen', `unix://${RESIZE}`, '--state-folder', state];

let shim: ShimProcess;
let cri: CriClient;
let direct: CriClient;
let api: ResizeClient;
const pods: RunningPod[] = [];

beforeAll(async () => {
  direct = new CriClient('unix:///run/containerd/containerd.sock');
  await start();
});
afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
});
afterAll(async () => {
  direct.close();
  cri.close();
  api.close();
  expect(await shim.stop()).toBe(0);
});

async function start(crashAt?: string): Promise<void> {
  shim = await ShimProcess.start({ args: ARGS, ...(crashAt !== undefined && { crashAt }) });
  cri = new CriClient(shim.address);
  api = new ResizeClient(RESIZE);
}

const limits = (mebibytes: number, quota: number): Resources => ({
  memory_limit_in_bytes: mebibytes * MI,
  cpu_quota: quota,
  cpu_period: 100_000,
  cpu_shares: 102,
});

async function pod(): Promise<RunningPod> {
  // Past the shim, whose processes come and go.
  const running = await runPod(direct, {
    name: 'web',
    containers: [
      { name: 'a', command: SLEEP, resources: limits(64, 10_000), mounts: { cache: '/cache' } },
      { name: 'b', command: SLEEP, resources: limits(128, 20_000) },
    ],
    volumes: [{ name: 'cache', size: 192 * MI }],
  });
  pods.push(running);
  return running;
}

/** All that a resize may change. */
const kernelOf = (running: RunningPod): (string | number)[] => [
  ...[undefined, 'a', 'b'].flatMap((name) => ['memory.max', 'cpu.max'].map((file) => running.read(file, name))),
  running.volume('cache').size,
  running.read('memory.high', 'a'),
  running.read('memory.high', 'b'),
];

const START = [
  ...[String(192 * MI), '30000 100000', String(64 * MI), '10000 100000', String(128 * MI), '20000 100000'],
  ...[192 * MI, 'max', 'max'],
];

const toBigger = (running: RunningPod) => ({
  pod: { sandbox_id: running.sandboxId },
  containers: {
    a: { limits: { memory: '128Mi', cpu: '200m' } },
    b: { limits: { memory: '96Mi', cpu: '300m' } },
  },
});
const BIGGER = [
  ...[String(224 * MI), '50000 100000', String(128 * MI), '20000 100000', String(96 * MI), '30000 100000'],
  ...[224 * MI, 'max', 'max'],
];

describe('a whole pod by ResizePod', () => {
  test('goes to its new values in one go: limits, volume, status, the same processes', async () => {
    const running = await pod();
    expect(kernelOf(running)).toEqual(START);
    const pids = ['a', 'b'].map((name) => running.read('cgroup.procs', name));
    const watcher = await LimitWatcher.watch(running);
    expect(await api.call('ResizePod', toBigger(running))).toMatchObject({ resize: { state: 'COMPLETED' } });
    const seen = await watcher.report();
    expect(seen.violations).toEqual([]);
    expect(kernelOf(running)).toEqual(BIGGER);
    expect(['a', 'b'].map((name) => running.read('cgroup.procs', name))).toEqual(pids);
    expect(running.oomKills()).toBe(0);
    expect(readdirSync(state)).toEqual([]);
  });

  test('is refused whole when one container cannot be lowered', async () => {
    const running = await pod();
    await cri.exec(running.id('b'), 'dd', 'if=/dev/zero', 'of=/dev/shm/held', 'bs=1M', 'count=48');
    const refused = await refusal(
      api.call('ResizePod', {
        pod: { sandbox_id: running.sandboxId },
        containers: { a: { limits: { memory: '128Mi' } }, b: { limits: { memory: '32Mi' } } },
      }),
    );
    expect(refused).toMatchObject({ code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(kernelOf(running)).toEqual(START);
    expect(running.oomKills()).toBe(0);
  });
});

describe('killed in the middle', () => {
  test.each([
    'journal-write-before',
    'journal-write-after',
    'pod-memory-before',
    'pod-memory-after',
    'pod-cpu-after',
    'container-before',
    'container-after',
    'container-after#2',
    'container-before#3',
    'volume-before',
    'volume-after',
    'journal-remove-before',
    'journal-remove-after',
  ])('at %s: a new shim finds the pod at its start or its target, and nothing is left', async (point) => {
    const running = await pod();
    const ended = shim.stop();
    cri.close();
    api.close();
    await ended;
    await start(point);
    await api.call('ResizePod', toBigger(running)).catch(() => undefined);
    expect(await shim.exited).toBeNull();
    cri.close();
    api.close();
    await start();
    await shim.waitForLog(({ msg }) => msg === 'registry compared with the backend');
    // Serialised behind whatever is mended.
    await cri.updateContainer(running.id('a'), {});
    await api.call('GetPod', { pod: { uid: running.uid } });
    await expect.poll(() => readdirSync(state), { timeout: 10_000 }).toEqual([]);
    expect([START, BIGGER]).toContainEqual(kernelOf(running));
    expect(running.oomKills()).toBe(0);
    expect(await api.call('ResizePod', toBigger(running))).toMatchObject({ resize: { state: 'COMPLETED' } });
    expect(kernelOf(running)).toEqual(BIGGER);
  });
});
