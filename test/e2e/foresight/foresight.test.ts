import { closeSync, mkdirSync, openSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type RunningPod, runPod } from '../../support/cri/pod.ts';
import type { ShimProcess } from '../../support/cri/shim.ts';
import type { Answer, ResizeClient } from '../../support/resize-api/client.ts';
import { Kubelet, removeFiles } from '../../support/e2e/kubelet.ts';
import { Served } from '../../support/e2e/served.ts';
import { Tenant, cgroupOf } from '../../support/e2e/tenant.ts';

/**
 * Memory limits that kubelet has admitted and refuses to lower because more is in use, with and without the shim's
 * help.
 */

const MiB = 1024 * 1024;
// A folder of the machine outside, so its pages are page cache. All other folders of the node are in a tmpfs, whose
// pages are not.
const outside = process.env['NODE_OUT'] ?? '';
/** How long kubelet retries with the shim's help, and without it. */
const HELPED_MS = 20_000;
const ALONE_MS = 1500;
const CARRIED_OUT = 'memory decrease applied by kubelet after reclaim';

let served: Served;
let shim: ShimProcess;
let cri: CriClient;
let api: ResizeClient;
let kubelet: Kubelet;
const pods: RunningPod[] = [];
const tenants: Tenant[] = [];
const files: string[] = [];

async function start(...args: string[]): Promise<void> {
  mkdirSync(KUBELET_ROOT, { recursive: true });
  served = await Served.start({ name: 'foresight-test', args });
  ({ shim, cri, api } = served);
  kubelet = new Kubelet(cri);
}

async function stop(): Promise<void> {
  await served.stop();
  removeFiles();
}

afterEach(async () => {
  for (const tenant of tenants.splice(0)) await tenant.end();
  await Promise.all(
    pods.splice(0).map((pod) => {
      kubelet.forget(pod);
      return pod.remove();
    }),
  );
  for (const file of files.splice(0)) rmSync(file, { force: true });
});

/** Creates a pod with one container, `a`, which kubelet knows. */
async function makePod(mebibytes = 192, level?: number): Promise<RunningPod> {
  const resources = level === undefined ? { memory_limit_in_bytes: mebibytes * MiB } : {};
  const pod = await runPod(cri, {
    name: 'web',
    containers: [{ name: 'a', command: ['sleep', '1000000'], resources }],
    ...(level !== undefined && { podMemory: level * MiB }),
  });
  pods.push(pod);
  kubelet.runs(pod, { containers: { a: level === undefined ? mebibytes : undefined }, ...(level && { level }) });
  return pod;
}

async function tenantIn(pod: RunningPod): Promise<Tenant> {
  const tenant = await Tenant.in(cgroupOf(pod.cgroup, pod.id('a')));
  tenants.push(tenant);
  return tenant;
}

let made = 0;
/** Creates a sparse file outside: it takes no space there, and its pages are page cache when read. */
function bigFile(mebibytes: number): string {
  const file = join(outside, `foresight-${(made += 1)}`);
  closeSync(openSync(file, 'w'));
  truncateSync(file, mebibytes * MiB);
  files.push(file);
  return file;
}

/** Creates a file whose pages are shared memory or, in the folder outside, dirty page cache. */
function newFile(folder: string): string {
  const file = join(folder, `foresight-new-${(made += 1)}`);
  files.push(file);
  return file;
}

const useOf = (pod: RunningPod): number => Number(pod.read('memory.current', 'a'));
const limitsOf = (pod: RunningPod): string[] => [pod.read('memory.max'), pod.read('memory.max', 'a')];
const both = (mebibytes: number): string[] => [String(mebibytes * MiB), String(mebibytes * MiB)];
const highsOf = (pod: RunningPod): string[] => [pod.read('memory.high'), pod.read('memory.high', 'a')];

/** The shim's part of a verbose PodSandboxStatus. */
interface Status {
  readonly state?: string;
  readonly lastError?: { readonly reason: string; readonly message: string };
  readonly decrease?: { readonly state: string; readonly message: string; readonly reclaimedBytes: number };
  readonly pod: { readonly kubeletWants?: object; readonly actual?: object };
  readonly containers: Readonly<Record<string, { readonly kubeletWants?: object }>>;
}
async function statusOf(pod: RunningPod): Promise<Status> {
  const request = { pod_sandbox_id: pod.sandboxId, verbose: true };
  const { info } = await cri.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
  return JSON.parse(info['cri-resize-shim'] ?? '{}') as Status;
}

/** How a process of the container fills memory: page cache, and memory that cannot be reclaimed. */
const CASES: {
  readonly what: string;
  readonly fill: (tenant: Tenant) => Promise<void>;
  /** Whether usage without page cache is below the new limit. */
  readonly canShrink: boolean;
}[] = [
  { what: 'page cache', fill: (tenant) => tenant.run('read', bigFile(100)), canShrink: true },
  {
    what: 'dirty page cache',
    fill: (tenant) => tenant.run('dirty', newFile(outside), 100 * MiB),
    canShrink: true,
  },
  { what: 'shared memory', fill: (tenant) => tenant.run('dirty', newFile('/tmp'), 100 * MiB), canShrink: false },
  { what: 'anonymous memory', fill: (tenant) => tenant.run('hold', 100 * MiB), canShrink: false },
  {
    what: 'a mixture that fits',
    fill: async (tenant) => {
      await tenant.run('hold', 16 * MiB);
      await tenant.run('dirty', newFile('/tmp'), 16 * MiB);
      await tenant.run('dirty', newFile(outside), 30 * MiB);
      await tenant.run('read', bigFile(60));
    },
    canShrink: true,
  },
  {
    what: 'a mixture that does not fit',
    fill: async (tenant) => {
      await tenant.run('hold', 52 * MiB);
      await tenant.run('dirty', newFile('/tmp'), 16 * MiB);
      await tenant.run('read', bigFile(60));
    },
    canShrink: false,
  },
];

/** Provides one pod for all tests of a group, with 192 MiB at the start of each test. */
function sharedPod(): () => RunningPod {
  let shared: RunningPod | undefined;
  const pod = (): RunningPod => {
    if (shared === undefined) throw new Error('the pod does not exist yet');
    return shared;
  };
  beforeAll(async () => {
    shared = await makePod();
    pods.splice(0);
  });
  afterEach(() => kubelet.resize(pod(), { containers: { a: 192 } }, HELPED_MS));
  afterAll(async () => {
    kubelet.forget(pod());
    await pod().remove();
  });
  return pod;
}

describe('without foresight', () => {
  beforeAll(() => start('--foresight=false'));
  afterAll(stop);
  const podOf = sharedPod();

  test.each(CASES)('without foresight kubelet does not lower the limit of a container with $what', async ({ fill }) => {
    const pod = podOf();
    await fill(await tenantIn(pod));
    const before = useOf(pod);
    await expect(kubelet.resize(pod, { containers: { a: 64 } }, ALONE_MS)).rejects.toThrow(/below current usage/);
    expect(useOf(pod)).toBeGreaterThan(before - 8 * MiB);
    expect([limitsOf(pod), pod.oomKills()]).toEqual([both(192), 0]);
    expect((await statusOf(pod)).containers['a']?.kubeletWants).toBeUndefined();
  });

  test('without foresight kubelet does not lower the limit of a container whose usage grows', async () => {
    const pod = podOf();
    const tenant = await tenantIn(pod);
    const file = bigFile(120);
    await tenant.run('read', file);
    await tenant.run('churn', file, 16 * MiB);
    await expect(kubelet.resize(pod, { containers: { a: 64 } }, ALONE_MS)).rejects.toThrow(/below current usage/);
    await tenant.run('nothing');
    expect([limitsOf(pod), pod.oomKills()]).toEqual([both(192), 0]);
  });

  test('without foresight kubelet does not lower the limits of ten pods', async () => {
    const ten = await Promise.all(Array.from({ length: 10 }, () => makePod(96)));
    for (const pod of ten) await (await tenantIn(pod)).run('read', bigFile(60));
    const results = await Promise.allSettled(
      ten.map((pod) => kubelet.resize(pod, { containers: { a: 48 } }, ALONE_MS, 250)),
    );
    expect(new Set(results.map(({ status }) => status))).toEqual(new Set(['rejected']));
    for (const pod of ten) expect([limitsOf(pod), pod.oomKills()]).toEqual([both(96), 0]);
  });

  test('without foresight kubelet does not lower the limits of a pod itself', async () => {
    const pod = await makePod(0, 192);
    await (await tenantIn(pod)).run('read', bigFile(100));
    const lowered = kubelet.resize(pod, { containers: { a: undefined }, level: 64 }, ALONE_MS);
    await expect(lowered).rejects.toThrow(/below current usage/);
    expect([limitsOf(pod), pod.oomKills()]).toEqual([[String(192 * MiB), 'max'], 0]);
  });
});

describe('with foresight', () => {
  beforeAll(() => start());
  afterAll(stop);

  describe('one container', () => {
    const podOf = sharedPod();

    test.each(CASES.filter(({ canShrink }) => canShrink))(
      'kubelet lowers a limit below usage after reclaim: $what',
      async ({ what, fill }) => {
        const pod = podOf();
        const tenant = await tenantIn(pod);
        await fill(tenant);
        const before = useOf(pod);
        const logLength = shim.log.length;
        expect(before).toBeGreaterThan(96 * MiB);
        const { ms, tries } = await kubelet.resize(pod, { containers: { a: 64 } }, HELPED_MS);
        console.log(`${what}: ${ms} ms from admission to actuation, kubelet tried ${tries} times`);
        expect(limitsOf(pod)).toEqual(both(64));
        expect(highsOf(pod)).toEqual(['max', 'max']);
        expect(pod.oomKills()).toBe(0);
        await tenant.run('nothing');
        // kubelet may apply the limit before usage reaches the margin, so the sum counts, not the line of one round.
        const end = await shim.waitForLog(
          (line) => line.msg === CARRIED_OUT && line['uid'] === pod.uid && shim.log.indexOf(line) >= logLength,
        );
        const sum = Number(end['reclaimed']);
        expect(sum).toBeGreaterThan(before - 64 * MiB - 2 * MiB);
        // What is above the limit, plus the margin of 8 MiB.
        expect(sum).toBeLessThanOrEqual(before - 56 * MiB + 2 * MiB);
        const over = await statusOf(pod);
        expect([over.state, over.decrease, over.containers['a']?.kubeletWants]).toEqual([
          'Completed',
          undefined,
          undefined,
        ]);
      },
    );

    test.each(CASES.filter(({ canShrink }) => !canShrink))(
      'a decrease that cannot be reclaimed is Deferred with figures, kills nothing, and is applied once memory is freed: $what',
      async ({ fill }) => {
        const pod = podOf();
        const tenant = await tenantIn(pod);
        await fill(tenant);
        const before = useOf(pod);
        await expect(kubelet.resize(pod, { containers: { a: 64 } }, ALONE_MS)).rejects.toThrow(/below current usage/);
        expect([limitsOf(pod), highsOf(pod), pod.oomKills()]).toEqual([both(192), ['max', 'max'], 0]);
        // Memory whose reclaim would not help is not reclaimed.
        expect(useOf(pod)).toBeGreaterThan(before - 8 * MiB);
        const status = await statusOf(pod);
        expect(status).toMatchObject({
          state: 'Deferred',
          lastError: { reason: 'MEMORY_NOT_RECLAIMABLE' },
          decrease: { state: 'Deferred', reclaimedBytes: 0 },
          pod: { kubeletWants: { 'memory.max': String(64 * MiB) }, actual: { 'memory.max': String(192 * MiB) } },
          containers: { a: { kubeletWants: { 'memory.max': String(64 * MiB) } } },
        });
        const found = Number(
          /(\d+) bytes are in use that cannot be reclaimed/.exec(status.lastError?.message ?? '')?.[1],
        );
        expect(found).toBeGreaterThan(62 * MiB);
        const { pod: reported } = await api.call('GetPod', { pod: { uid: pod.uid } });
        expect((reported as Answer)['kubelet']).toMatchObject({
          state: 'DEFERRED',
          reason: 'MEMORY_NOT_RECLAIMABLE',
          values: { pod: { memory_max: String(64 * MiB) } },
        });
        await tenant.end();
        for (const file of files.splice(0)) rmSync(file, { force: true });
        await kubelet.resize(pod, { containers: { a: 64 } }, HELPED_MS);
        expect([limitsOf(pod), pod.oomKills()]).toEqual([both(64), 0]);
      },
    );
  });

  test('usage that grows during reclaim is reclaimed with backoff, kills nothing, and fits once it stops growing', async () => {
    const pod = await makePod();
    const tenant = await tenantIn(pod);
    const file = bigFile(120);
    await tenant.run('read', file);
    await tenant.run('churn', file, 16 * MiB);
    const climbing = await kubelet.resize(pod, { containers: { a: 64 } }, 4000).then(
      () => true,
      () => false,
    );
    // Reclaims immediately, and then 1, 3 and 7 s later.
    const tries = shim.log.filter(({ msg, uid }) => msg === 'memory reclaimed for kubelet' && uid === pod.uid).length;
    expect(tries).toBeLessThanOrEqual(8);
    expect(pod.oomKills()).toBe(0);
    await tenant.run('nothing');
    if (!climbing) await kubelet.resize(pod, { containers: { a: 64 } }, HELPED_MS);
    expect([limitsOf(pod), highsOf(pod), pod.oomKills()]).toEqual([both(64), ['max', 'max'], 0]);
  });

  test('limits of ten pods are lowered concurrently', async () => {
    const ten = await Promise.all(Array.from({ length: 10 }, () => makePod(96)));
    for (const pod of ten) await (await tenantIn(pod)).run('read', bigFile(60));
    const results = await Promise.all(ten.map((pod) => kubelet.resize(pod, { containers: { a: 48 } }, HELPED_MS, 250)));
    console.log(`ten pods: ${results.map(({ ms }) => ms).join(', ')} ms from admission to actuation`);
    for (const pod of ten) expect([limitsOf(pod), highsOf(pod), pod.oomKills()]).toEqual([both(48), ['max', 'max'], 0]);
  });

  test('limits of the pod itself are lowered below usage', async () => {
    const pod = await makePod(0, 192);
    await (await tenantIn(pod)).run('read', bigFile(100));
    const { ms, tries } = await kubelet.resize(pod, { containers: { a: undefined }, level: 64 }, HELPED_MS);
    console.log(`pod-level resources: ${ms} ms from admission to actuation, kubelet tried ${tries} times`);
    expect([limitsOf(pod), highsOf(pod), pod.oomKills()]).toEqual([[String(64 * MiB), 'max'], ['max', 'max'], 0]);
  });

  test('the shim continues when a pod with a deferred decrease is removed', async () => {
    const pod = await makePod();
    await (await tenantIn(pod)).run('hold', 100 * MiB);
    kubelet.admit(pod, { containers: { a: 64 } });
    await shim.waitForLog(({ msg, uid }) => msg === 'memory decrease admitted by kubelet deferred' && uid === pod.uid);
    for (const tenant of tenants.splice(0)) await tenant.end();
    pods.splice(pods.indexOf(pod), 1);
    await pod.remove();
    kubelet.forget(pod);
    const other = await makePod();
    await (await tenantIn(other)).run('read', bigFile(100));
    await kubelet.resize(other, { containers: { a: 64 } }, HELPED_MS);
    expect(limitsOf(other)).toEqual(both(64));
  });

  test('a decrease is known only while the checkpoint file exists and is complete', async () => {
    const pod = await makePod();
    await (await tenantIn(pod)).run('hold', 100 * MiB);
    kubelet.admit(pod, { containers: { a: 64 } });
    const wants = async (): Promise<object | undefined> => (await statusOf(pod)).containers['a']?.kubeletWants;
    const wanted = { 'memory.max': String(64 * MiB) };
    await expect.poll(wants).toEqual(wanted);
    for (const spoil of [
      () => rmSync(join(KUBELET_ROOT, 'allocated_pods_state')),
      () => truncateSync(join(KUBELET_ROOT, 'allocated_pods_state'), 40),
      () => kubelet.replace('allocated_pods_state', '{"data":"{\\"entries\\":7}","checksum":"new"}'),
    ]) {
      spoil();
      await expect.poll(wants).toBeUndefined();
      await expect.poll(async () => (await statusOf(pod)).decrease).toBeUndefined();
      kubelet.write('allocated_pods_state');
      await expect.poll(wants).toEqual(wanted);
    }
    expect(shim.log.filter(({ msg }) => msg === 'kubelet checkpoint not understood')).toHaveLength(2);
    await expect.poll(async () => (await statusOf(pod)).decrease?.state).toBe('Deferred');
  });

  test('calls are answered and the newest checkpoint counts while 5 MB checkpoints are replaced continuously', async () => {
    const pod = await makePod();
    await (await tenantIn(pod)).run('read', bigFile(100));
    const entries = Array.from({ length: 3000 }, (_, n) => {
      const containers = Array.from(
        { length: 20 },
        (_, at) => `"container-${at}":{"limits":{"memory":"64Mi"},"requests":{"memory":"32Mi"}}`,
      );
      return `"pod-${n}":{"ContainerResources":{${containers.join(',')}},"PodLevelResources":null}`;
    });
    const large = JSON.stringify({ data: `{"entries":{${entries.join(',')}}}`, checksum: 1 });
    expect(large.length).toBeGreaterThan(5_000_000);
    const waits: number[] = [];
    const rates: number[] = [];
    // Each call has to be answered within kubelet's shortest timeout. CriClient has one minute. The waits are printed,
    // not judged.
    for (const [count, text] of [
      [12, large],
      [6000, kubelet.textOf('actuated_pods_state')],
    ] as const) {
      let busy = 0;
      for (let n = 0; n < count; n += 1) {
        const begun = performance.now();
        kubelet.replace('actuated_pods_state', `${text}${' '.repeat(n % 7)}`);
        busy += performance.now() - begun;
        if (n % Math.ceil(count / 12) !== 0) continue;
        const asked = performance.now();
        await cri.version();
        waits.push(performance.now() - asked);
      }
      rates.push(Math.round((1000 * count) / busy));
    }
    expect(waits).toHaveLength(24);
    console.log(`files replaced per second: ${rates.join(', ')}`);
    // An idle machine replaces five times as many.
    expect(rates[1]).toBeGreaterThan(1000);
    kubelet.write();
    const { ms } = await kubelet.resize(pod, { containers: { a: 64 } }, HELPED_MS);
    console.log(
      `after the checkpoint storm: ${ms} ms from admission to actuation, calls waited ${Math.round(Math.max(...waits))} ms at most`,
    );
    expect([limitsOf(pod), pod.oomKills()]).toEqual([both(64), 0]);
  });
});

test('a decrease that kubelet admitted before the shim started is helped when it starts', async () => {
  await start();
  const pod = await makePod();
  await (await tenantIn(pod)).run('read', bigFile(100));
  const first = cri;
  api.close();
  expect(await shim.stop()).toBe(0);
  writeFileSync(join(KUBELET_ROOT, 'cpu_manager_state'), '{}');
  kubelet.admit(pod, { containers: { a: 64 } });
  await start();
  await shim.waitForLog(({ msg, uid }) => msg === 'memory reclaimed for kubelet' && uid === pod.uid);
  kubelet.runs(pod, { containers: { a: 192 } });
  await kubelet.resize(pod, { containers: { a: 64 } }, HELPED_MS);
  expect([limitsOf(pod), pod.oomKills()]).toEqual([both(64), 0]);
  for (const tenant of tenants.splice(0)) await tenant.end();
  pods.splice(0);
  await pod.remove();
  first.close();
  await stop();
});
