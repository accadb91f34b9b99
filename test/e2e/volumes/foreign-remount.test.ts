import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type PodSpec, RunningPod, runPod } from '../../support/cri/pod.ts';
import type { ShimProcess } from '../../support/cri/shim.ts';
import { Served } from '../../support/e2e/served.ts';
import type { ResizeClient } from '../../support/resize-api/client.ts';

/** Volumes that another program remounts (here mount(8), as kubelet 1.37 does), and shims that restart meanwhile. */

const LISTEN = 'unix:///run/remount-test/cri.sock';
const CACHE = 'volume.cri-resize-shim.io/cache';

let state: string;
let served: Served;
let shim: ShimProcess;
let cri: CriClient;
let api: ResizeClient;
const direct = new CriClient('unix:///run/containerd/containerd.sock');

async function start(): Promise<void> {
  served = await Served.start({ name: 'remount-test', listen: LISTEN, args: ['--state-folder', state] });
  ({ shim, cri, api } = served);
  await compared(1);
}
const stop = (): Promise<void> => served.stop();
const compared = (times: number): Promise<unknown> =>
  shim.waitForLog(({ msg }) => msg === 'registry compared with the backend', times, 60_000);

beforeEach(async () => {
  state = mkdtempSync(join(tmpdir(), 'remount-'));
  await start();
});
afterEach(async () => {
  await stop();
  rmSync(state, { recursive: true });
});
afterAll(() => direct.close());

const limit = (mebibytes: number) => ({ memory_limit_in_bytes: mebibytes * MiB });
/** Creates a pod through the shim. The pod is removed directly, because another shim may run by then. */
async function pod(volume: number, annotations: PodSpec['annotations'] = {}, again?: string): Promise<RunningPod> {
  const { uid, sandboxId, containers, volumes } = await runPod(cri, {
    ...(again !== undefined && { uid: again }),
    name: 'web',
    containers: [{ name: 'a', command: ['sleep', '1000000'], resources: limit(128), mounts: { cache: '/cache' } }],
    volumes: [{ name: 'cache', size: volume * MiB }],
    annotations,
  });
  return new RunningPod(direct, uid, sandboxId, containers, volumes);
}
const sizeOf = (running: RunningPod): number => running.volume('cache').size / MiB;
const remount = (running: RunningPod, mebibytes: number): Promise<unknown> =>
  execa('mount', ['-o', `remount,size=${mebibytes}m`, running.volumePath('cache')]);
const toSize = (running: RunningPod, cache: string): Promise<unknown> =>
  api.call('ResizePod', { pod: { uid: running.uid }, volumes: { cache } });

interface ShimInfo {
  readonly volumes: Readonly<Record<string, { allocated?: number; actual?: number; policy?: string }>>;
}
/** The volume in the verbose PodSandboxStatus. */
async function volumeInfo(running: RunningPod): Promise<ShimInfo['volumes'][string] | undefined> {
  const request = { pod_sandbox_id: running.sandboxId, verbose: true };
  const { info } = await cri.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
  return (JSON.parse(info['cri-resize-shim']!) as ShimInfo).volumes['cache'];
}

describe('a shim that restarts between two of kubelet’s calls', () => {
  test('KEP-6030: a restarted shim knows that a volume follows the limit, although their sizes differ', async () => {
    const running = await pod(128);
    // kubelet 1.33 to 1.35 raises the pod's cgroup by itself, then the container.
    writeFileSync(join(running.cgroup, 'memory.max'), String(192 * MiB));
    await stop();
    await start();
    // Without the spec, no larger than it was mounted.
    expect(await volumeInfo(running)).toMatchObject({ actual: 128 * MiB, policy: 'follow, at most 128Mi' });
    await cri.updateContainer(running.id('a'), limit(192));
    expect(sizeOf(running)).toBe(128);
    // kubelet lowers the container, then the pod's cgroup.
    await cri.updateContainer(running.id('a'), limit(96));
    expect(sizeOf(running)).toBe(96);
    await stop();
    await start();
    writeFileSync(join(running.cgroup, 'memory.max'), String(96 * MiB));
    await cri.updateContainer(running.id('a'), limit(160));
    expect(sizeOf(running)).toBe(128);
    await running.remove();
  });

  test('KEP-6030: a restarted shim knows that a volume is fixed, although it equals the limit', async () => {
    const running = await pod(64);
    await cri.updateContainer(running.id('a'), limit(64));
    expect(sizeOf(running)).toBe(64);
    await stop();
    await start();
    expect(await volumeInfo(running)).toMatchObject({ policy: 'fixed' });
    await cri.updateContainer(running.id('a'), limit(128));
    expect(sizeOf(running)).toBe(64);
    await running.remove();
  });

  test('KEP-6030: a restarted shim knows a share that was requested by ResizePod', async () => {
    const running = await pod(128);
    await toSize(running, '25%');
    expect(sizeOf(running)).toBe(32);
    await stop();
    await start();
    await cri.updateContainer(running.id('a'), limit(192));
    expect(sizeOf(running)).toBe(48);
    expect(await volumeInfo(running)).toMatchObject({ policy: '25%' });
    await running.remove();
  });
});

test.each([
  ['its own remount, followed by a kill', 96, 'follow, at most 128Mi'],
  ['its own remount, but another size', 80, '80Mi'],
])(
  'a shim that finds %s in its journal determines whether another program has remounted the volume',
  async (_, found, policy) => {
    const running = await pod(128);
    await stop();
    await remount(running, found);
    const file = join(state, `${running.uid}.json`);
    const step = { kind: 'volume', volume: 'cache', from: 128 * MiB, to: 96 * MiB };
    const transaction = { id: 't', startedAt: 1, undoing: false, steps: [step], highs: [] };
    writeFileSync(file, JSON.stringify({ ...(JSON.parse(readFileSync(file, 'utf8')) as object), transaction }));
    await start();
    await shim.waitForLog(({ msg }) => msg === 'unfinished resize recovered');
    expect(await volumeInfo(running)).toMatchObject({ actual: found * MiB, policy });
    await cri.updateContainer(running.id('a'), limit(160));
    expect(sizeOf(running)).toBe(found === 96 ? 128 : found);
    await running.remove();
  },
);

describe('a volume that another program remounts', () => {
  const nothing = (): Promise<void> => Promise.resolve();

  test.each([
    ['followed the limit', {}, nothing],
    ['had a size by ResizePod', {}, (running: RunningPod) => toSize(running, '96Mi')],
    ['had a share by ResizePod', {}, (running: RunningPod) => toSize(running, '75%')],
  ] as const)(
    'KEP-6030: a volume that %s keeps its new size after a remount by another program',
    async (_, annotations, before) => {
      const running = await pod(128, annotations);
      await before(running);
      await remount(running, 48);
      // The next status reports it.
      expect(await volumeInfo(running)).toMatchObject({ allocated: 48 * MiB, actual: 48 * MiB, policy: '48Mi' });
      await cri.updateContainer(running.id('a'), limit(160));
      expect([running.read('memory.max'), sizeOf(running)]).toEqual([String(160 * MiB), 48]);
      const line = await shim.waitForLog(
        ({ msg, pod: id }) => msg.startsWith('volume remounted by another program') && id === running.sandboxId,
      );
      expect(line).toMatchObject({ volume: 'cache', to: 48 * MiB });

      // A restart of containerd makes the shim compare the registry.
      await execa('node-containerd', ['kill']);
      await execa('node-containerd', ['start']);
      await compared(2);
      await cri.ready(30_000);
      await cri.updateContainer(running.id('a'), limit(128));
      expect(sizeOf(running)).toBe(48);

      // Remounts while no shim runs.
      await stop();
      await remount(running, 56);
      await start();
      await cri.updateContainer(running.id('a'), limit(160));
      expect(sizeOf(running)).toBe(56);
      expect(await volumeInfo(running)).toMatchObject({ allocated: 56 * MiB, policy: '56Mi' });
      // A later request is newer.
      await toSize(running, '40Mi');
      expect(sizeOf(running)).toBe(40);
      await running.remove();
    },
  );

  test('KEP-6030: a remounted volume with an annotation of the pod gets the size of the annotation again', async () => {
    const running = await pod(128, { [CACHE]: '50%' });
    expect(sizeOf(running)).toBe(64);
    await remount(running, 48);
    await cri.updateContainer(running.id('a'), limit(160));
    expect(sizeOf(running)).toBe(80);
    await stop();
    await remount(running, 48);
    await start();
    // A start alone changes nothing.
    expect(sizeOf(running)).toBe(48);
    await cri.updateContainer(running.id('a'), limit(128));
    expect(sizeOf(running)).toBe(64);
    expect(await volumeInfo(running)).toMatchObject({ policy: '50%' });
    expect(shim.log.filter(({ msg }) => msg.startsWith('volume remounted'))).toEqual([]);
    await running.remove();
  });

  test('KEP-6030: a remounted volume gets its new size again when it is mounted after a reboot', async () => {
    const running = await pod(128);
    await remount(running, 48);
    await cri.updateContainer(running.id('a'), limit(160));
    await stop();
    await direct.call('StopPodSandbox', { pod_sandbox_id: running.sandboxId });
    await direct.call('RemovePodSandbox', { pod_sandbox_id: running.sandboxId });
    await execa('umount', [running.volumePath('cache')]);
    const file = join(state, `${running.uid}.json`);
    const record = JSON.parse(readFileSync(file, 'utf8')) as object;
    writeFileSync(file, JSON.stringify({ ...record, bootId: 'another' }));
    await start();
    const again = await pod(128, {}, running.uid);
    expect(sizeOf(again)).toBe(48);
    await again.remove();
  });
});
