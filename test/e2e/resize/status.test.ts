import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { ResizeClient, refusal } from '../../support/resize-api/client.ts';

const RESIZE = '/run/status-test/resize.sock';
const STATE = '/run/status-test-state';
const KEY = 'cri-resize-shim';
const SLEEP = ['sleep', '1000000'];

let shim: ShimProcess;
let cri: CriClient;
let direct: CriClient;
let api: ResizeClient;
const pods: RunningPod[] = [];

beforeAll(async () => {
  mkdirSync(STATE, { mode: 0o700 });
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=700', 'tmpfs', STATE]);
  shim = await ShimProcess.start({ args: ['--resize-listen', RESIZE, '--state-folder', STATE] });
  cri = new CriClient(shim.address);
  direct = new CriClient('unix:///run/containerd/containerd.sock');
  api = new ResizeClient(RESIZE);
});
afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
});
afterAll(async () => {
  for (const client of [cri, direct, api]) client.close();
  expect(await shim.stop()).toBe(0);
  execFileSync('umount', [STATE]);
  rmSync(STATE, { recursive: true });
});

async function pod(): Promise<RunningPod> {
  const resources = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 };
  const running = await runPod(cri, {
    name: 'web',
    containers: [{ name: 'a', command: SLEEP, resources, mounts: { cache: '/cache' } }],
    volumes: [{ name: 'cache', size: 32 * MiB }],
  });
  pods.push(running);
  return running;
}

type Info = Readonly<Record<string, string>>;
const infoOf = async (client: CriClient, running: RunningPod, verbose = true): Promise<Info> => {
  const request = { pod_sandbox_id: running.sandboxId, verbose };
  return (await client.call<{ info: Info }>('PodSandboxStatus', request)).info;
};
const ownInfo = async (running: RunningPod): Promise<unknown> => JSON.parse((await infoOf(cri, running))[KEY]!);
interface StatusInfo {
  readonly connections: number;
  readonly ready: boolean;
  readonly checks: readonly { readonly name: string; readonly says: string }[];
}
const statusInfo = async (): Promise<StatusInfo> => {
  const { info } = await cri.call<{ info: Info }>('Status', { verbose: true });
  return JSON.parse(info[KEY]!) as StatusInfo;
};
const memory = (mebibytes: number) => ({ 'memory.max': String(mebibytes * MiB) });
const four = (mebibytes: number) => ({
  desired: memory(mebibytes),
  allocated: memory(mebibytes),
  actuated: memory(mebibytes),
  actual: memory(mebibytes),
});

describe('a verbose PodSandboxStatus', () => {
  test('KEP-6030: a verbose PodSandboxStatus has desired, allocated, actuated and actual values, and all info of the runtime', async () => {
    const running = await pod();
    const { [KEY]: own, ...others } = await infoOf(cri, running);
    expect(own).toBeDefined();
    expect(others).toEqual(await infoOf(direct, running));
    // containerd 2.3 returns an empty map here, and older versions none.
    expect(await infoOf(cri, running, false)).toEqual(await infoOf(direct, running, false));

    await cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 96 * MiB });
    expect(await ownInfo(running)).toMatchObject({
      state: 'Completed',
      // The pod limit is tight, so it follows.
      pod: { allocated: memory(96), actuated: memory(96), actual: { ...memory(96), 'cpu.weight': '4' } },
      containers: { a: { id: running.id('a'), ...four(96) } },
      volumes: { cache: { actual: 32 * MiB, used: 0, policy: 'fixed' } },
    });

    const containers = { a: { limits: { memory: '128Mi', cpu: '200m' } } };
    await api.call('ResizePod', { pod: { uid: running.uid }, containers, volumes: { cache: '50%' } });
    const cpu = { 'cpu.max': '20000 100000' };
    const both = { ...memory(128), ...cpu };
    expect(await ownInfo(running)).toMatchObject({
      containers: { a: { desired: both, allocated: both, actuated: both, actual: both } },
      volumes: { cache: { desired: '50%', allocated: 64 * MiB, actuated: 64 * MiB, actual: 64 * MiB, policy: '50%' } },
    });
  });

  test('a verbose PodSandboxStatus has the reason of the last rejection until a request is applied', async () => {
    const running = await pod();
    await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
    const refused = { pod: { uid: running.uid }, volumes: { cache: '16Mi' } };
    await refusal(api.call('ResizePod', refused));
    expect(await ownInfo(running)).toMatchObject({
      state: 'Deferred',
      lastError: { reason: 'VOLUME_IN_USE', message: expect.stringContaining(String(24 * MiB)) as string },
      volumes: { cache: { desired: '16Mi', actual: 32 * MiB, used: 24 * MiB, policy: 'fixed' } },
    });
    await cri.exec(running.id('a'), 'rm', '/cache/file');
    await api.call('ResizePod', refused);
    expect(await ownInfo(running)).toMatchObject({ state: 'Completed', volumes: { cache: { actual: 16 * MiB } } });
    expect(await ownInfo(running)).not.toHaveProperty('lastError');
  });
});

test('a verbose Status reports the number of connected clients', async () => {
  expect(await statusInfo()).toMatchObject({ connections: 1 });
  const other = new CriClient(shim.address);
  await other.version();
  expect(await statusInfo()).toMatchObject({ connections: 2 });
  other.close();
  await expect.poll(async () => (await statusInfo()).connections).toBe(1);
});

describe('a journal that cannot be written', () => {
  test('KEP-1287: an unwritable journal rejects resizes and is reported as not ready until it recovers, while other calls pass', async () => {
    const running = await pod();
    expect(await statusInfo()).toMatchObject({
      ready: true,
      checks: [{ name: 'backend' }, { name: 'cgroups', says: 'version 2' }, { name: 'journal' }, {}],
    });
    const journal = async () => (await statusInfo()).checks.find(({ name }) => name === 'journal')?.says;
    execFileSync('mount', ['-o', 'remount,ro', STATE]);
    try {
      // No resize has been requested yet: the call for the status checks the journal.
      await expect.poll(journal, { interval: 500 }).toMatch(/resizes are rejected: .*EROFS|read-only/);
      expect((await statusInfo()).ready).toBe(false);
      const resize = { pod: { uid: running.uid }, containers: { a: { limits: { memory: '80Mi' } } } };
      expect(await refusal(api.call('ResizePod', resize))).toMatchObject({ code: 9, reason: 'JOURNAL_UNAVAILABLE' });
      const update = cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 80 * MiB });
      expect(await refusal(update)).toMatchObject({ code: 9, reason: 'JOURNAL_UNAVAILABLE' });
      expect([running.read('memory.max'), running.read('memory.max', 'a')]).toEqual([
        String(64 * MiB),
        String(64 * MiB),
      ]);
      expect((await cri.version()).runtime_name).toBe('containerd');
      expect(await cri.exec(running.id('a'), 'echo', 'here')).toBe('here\n');
      expect((await statusInfo()).ready).toBe(false);
    } finally {
      execFileSync('mount', ['-o', 'remount,rw', STATE]);
    }
    // The shim checks the journal by itself every ten seconds, without a resize.
    await expect.poll(async () => (await statusInfo()).ready, { interval: 500 }).toBe(true);
    await cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 80 * MiB });
    expect([running.read('memory.max'), running.read('memory.max', 'a')]).toEqual([String(80 * MiB), String(80 * MiB)]);
  });
});
