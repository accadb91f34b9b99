import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient, type Resources } from '../../support/cri/client.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import { type PodSpec, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { PodWatcher } from '../../watch/watcher.ts';

const BACKEND = 'unix:///run/containerd/containerd.sock';

let shim: ShimProcess;
let cri: CriClient;
let direct: CriClient;
const pods: RunningPod[] = [];

beforeAll(async () => {
  shim = await ShimProcess.start();
  cri = new CriClient(shim.address);
  direct = new CriClient(BACKEND);
});

afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
});

afterAll(async () => {
  cri.close();
  direct.close();
  expect(await shim.stop()).toBe(0);
});

const limits = (mebibytes: number, quota: number, shares = 102): Resources => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: quota,
  cpu_period: 100_000,
  cpu_shares: shares,
});

const SLEEP = ['sleep', '1000000'];

async function pod(spec: Partial<PodSpec> = {}): Promise<RunningPod> {
  const running = await runPod(cri, {
    name: 'web',
    containers: [
      { name: 'a', command: SLEEP, resources: limits(64, 10_000), mounts: { cache: '/cache' } },
      { name: 'b', command: SLEEP, resources: limits(128, 20_000) },
    ],
    volumes: [{ name: 'cache', size: 192 * MiB }],
    ...spec,
  });
  pods.push(running);
  return running;
}

/** The values of UpdatePodSandboxResources that the runtime stores. */
async function storedBy(client: CriClient, sandboxId: string): Promise<unknown> {
  const request = { pod_sandbox_id: sandboxId, verbose: true };
  const { info } = await client.call<{ info: { info: string } }>('PodSandboxStatus', request);
  const { resources, overhead } = JSON.parse(info.info) as { resources?: object; overhead?: object };
  return { ...(resources && { resources }), ...(overhead && { overhead }) };
}

/** The steps that the log reports for the nth resize of a pod. */
async function stepsOf(running: RunningPod, number = 1): Promise<string[]> {
  const line = await shim.waitForLog(({ msg, pod: id }) => msg === 'pod resized' && id === running.sandboxId, number);
  return (line['steps'] as { step: string }[]).map(({ step }) => step);
}

const refusal = (promise: Promise<unknown>): Promise<{ code: number; details: string }> =>
  promise.then(
    () => {
      throw new Error('the request was not rejected');
    },
    (error: unknown) => error as { code: number; details: string },
  );

describe('UpdateContainerResources', () => {
  test('KEP-1287: a tight pod limit is raised first and lowered last, without a sum above it at any instant', async () => {
    const running = await pod();
    const pids = await Promise.all(['a', 'b'].map((name) => cri.pidOf(running.id(name))));
    const watcher = await PodWatcher.watch(running);
    for (let round = 0; round < 10; round += 1) {
      await cri.updateContainer(running.id('a'), limits(256, 30_000));
      expect(running.read('memory.max')).toBe(String((256 + 128) * MiB));
      expect(running.read('cpu.max')).toBe('50000 100000');
      expect(running.read('memory.max', 'a')).toBe(String(256 * MiB));
      expect(running.read('cpu.max', 'a')).toBe('30000 100000');
      await cri.updateContainer(running.id('a'), limits(64, 10_000));
      expect(running.read('memory.max')).toBe(String((64 + 128) * MiB));
      expect(running.read('cpu.max')).toBe('30000 100000');
      expect(running.read('memory.max', 'a')).toBe(String(64 * MiB));
    }
    const report = await watcher.report();
    expect(report.violations).toEqual([]);
    expect(report.readings).toBeGreaterThan(100);
    // The watcher saw both ends of each resize, so it read during the resizes.
    expect(report.seen).toContain(`memory: containers ${384 * MiB}, pod ${384 * MiB}`);
    expect(report.seen).toContain(`memory: containers ${192 * MiB}, pod ${192 * MiB}`);
    expect(running.oomKills()).toBe(0);
    expect(await Promise.all(['a', 'b'].map((name) => cri.pidOf(running.id(name))))).toEqual(pids);
  });

  test('the watcher reports a sum above the pod limit without the shim', async () => {
    const running = await pod();
    const watcher = await PodWatcher.watch(running);
    // Calls the backend directly, as without the shim.
    await direct.updateContainer(running.id('a'), limits(256, 30_000));
    const { violations } = await watcher.report();
    expect(violations).not.toEqual([]);
  });

  test('one update can lower CPU and raise memory', async () => {
    const running = await pod({ annotations: { 'volume.cri-resize-shim.io/cache': 'follow' } });
    await cri.updateContainer(running.id('a'), limits(96, 5000));
    expect(running.read('memory.max')).toBe(String((96 + 128) * MiB));
    expect(running.read('cpu.max')).toBe('25000 100000');
    expect(await stepsOf(running)).toEqual([
      `pod memory.max ${192 * MiB} -> ${224 * MiB}`,
      'runtime',
      'pod cpu.max 30000 100000 -> 25000 100000',
      `volume cache ${192 * MiB} -> ${224 * MiB}`,
    ]);
  });

  test('KEP-1287: a looser pod limit is raised only if the sum exceeds it, and max stays max', async () => {
    const running = await pod({ podMemory: 512 * MiB, podCpu: 'max 100000' });
    await cri.updateContainer(running.id('a'), limits(256, 30_000));
    expect(running.read('memory.max')).toBe(String(512 * MiB));
    await cri.updateContainer(running.id('a'), limits(448, 30_000));
    expect(running.read('memory.max')).toBe(String((448 + 128) * MiB));
    expect(running.read('cpu.max')).toBe('max 100000');
  });

  test('KEP-1287: a pod limit that another program has raised before an update of a container is not raised again', async () => {
    const running = await pod();
    writeFileSync(join(running.cgroup, 'memory.max'), String(256 * MiB));
    await cri.updateContainer(running.id('a'), limits(128, 10_000));
    expect(running.read('memory.max')).toBe(String(256 * MiB));
  });

  test('UpdateContainerResources accepts a prefix of a container ID', async () => {
    const running = await pod();
    await cri.updateContainer(running.id('a').slice(0, 13), limits(96, 10_000));
    expect(running.read('memory.max', 'a')).toBe(String(96 * MiB));
    expect(running.read('memory.max')).toBe(String((96 + 128) * MiB));
  });

  test('an update of an unknown container ID gets the answer of the backend', async () => {
    const [ours, expected] = await Promise.all(
      [cri, direct].map((client) => refusal(client.updateContainer('feedfacefeedface', limits(64, 10_000)))),
    );
    expect(ours).toMatchObject({ code: 5, details: expected!.details });
  });

  test('KEP-1287: a container limit below unreclaimable memory is rejected with figures and changes nothing', async () => {
    const running = await pod();
    await cri.exec(running.id('b'), 'dd', 'if=/dev/zero', 'of=/dev/shm/held', 'bs=1M', 'count=48');
    const before = ['memory.max', 'cpu.max'].map((file) => [running.read(file), running.read(file, 'b')]);
    const error = await refusal(cri.updateContainer(running.id('b'), limits(32, 20_000)));
    expect(error.code).toBe(9);
    expect(error.details).toContain(String(32 * MiB));
    expect(error.details).toMatch(/\d+ bytes are in use that cannot be reclaimed/);
    expect(['memory.max', 'cpu.max'].map((file) => [running.read(file), running.read(file, 'b')])).toEqual(before);
    expect(running.oomKills()).toBe(0);
  });

  test('KEP-1287: an update that fails in the runtime half-way is rolled back on its container and the pod', async () => {
    const running = await pod();
    const before = ['memory.max', 'cpu.max'].map((file) => [running.read(file), running.read(file, 'a')]);
    // The kernel rejects this key, so runc fails after the shim has raised the pod.
    const broken = { ...limits(256, 30_000), unified: { 'memory.nonsense': '1' } };
    const ours = await refusal(cri.updateContainer(running.id('a'), broken));
    expect(['memory.max', 'cpu.max'].map((file) => [running.read(file), running.read(file, 'a')])).toEqual(before);
    // Without the shim, the runtime does not roll back the values that it has written.
    const expected = await refusal(direct.updateContainer(running.id('a'), broken));
    expect(ours.code).toBe(expected.code);
  });

  test('KEP-1287: an update of an exited container succeeds and does not change the pod limit', async () => {
    const running = await pod();
    await cri.call('StopContainer', { container_id: running.id('a'), timeout: 0 });
    await cri.updateContainer(running.id('a'), limits(256, 30_000));
    expect(running.read('memory.max')).toBe(String(192 * MiB));
  });

  test('an update without a container ID is forwarded unchanged', async () => {
    const error = await refusal(cri.call('UpdateContainerResources', { container_id: '' }));
    const without = await refusal(direct.call('UpdateContainerResources', { container_id: '' }));
    expect({ code: error.code, details: error.details }).toEqual({ code: without.code, details: without.details });
  });
});

describe('UpdatePodSandboxResources', () => {
  const podLimits: Resources = {
    memory_limit_in_bytes: 512 * MiB,
    cpu_quota: 80_000,
    cpu_period: 100_000,
    cpu_shares: 1024,
  };

  test('KEP-1287: UpdatePodSandboxResources is applied to the pod cgroup and answered, and changes nothing the second time', async () => {
    const running = await pod();
    await cri.updatePod(running.sandboxId, podLimits);
    expect(running.read('memory.max')).toBe(String(512 * MiB));
    expect(running.read('cpu.max')).toBe('80000 100000');
    expect(running.read('cpu.weight')).toBe('39');
    await stepsOf(running);
    await cri.updatePod(running.sandboxId, podLimits);
    await cri.updatePod(running.sandboxId, { memory_limit_in_bytes: -1 });
    // The second line belongs to the third call, because the second call changed nothing.
    expect(await stepsOf(running, 2)).toContainEqual(expect.stringMatching(/^pod memory\.max \d+ -> max$/));
    expect(running.read('memory.max')).toBe('max');
    expect(running.read('cpu.max')).toBe('80000 100000');
  });

  test('KEP-1287: UpdatePodSandboxResources adds overhead to the resources', async () => {
    const running = await pod();
    await cri.updatePod(running.sandboxId, podLimits, {
      overhead: { memory_limit_in_bytes: 16 * MiB, cpu_quota: 5000, cpu_period: 100_000 },
    });
    expect(running.read('memory.max')).toBe(String(528 * MiB));
    expect(running.read('cpu.max')).toBe('85000 100000');
  });

  test('an overhead that kubelet has subtracted from -1 leaves the pod without a limit', async () => {
    const running = await pod();
    const overhead = { cpu_shares: 256, memory_limit_in_bytes: 120 * MiB, cpu_quota: 25_000, cpu_period: 100_000 };
    await cri.updatePod(running.sandboxId, { ...podLimits, cpu_quota: -25_001 }, { overhead });
    expect(running.read('memory.max')).toBe(String(632 * MiB));
    expect(running.read('cpu.max')).toBe('max 100000');
    await cri.updatePod(running.sandboxId, { ...podLimits, memory_limit_in_bytes: -125_829_121 }, { overhead });
    expect(running.read('memory.max')).toBe('max');
    expect(running.read('cpu.max')).toBe('105000 100000');
  });

  test('an admitted update of a pod is forwarded to a runtime that supports the call, and a rejected one is not', async () => {
    const running = await pod();
    const overhead = { memory_limit_in_bytes: 16 * MiB, cpu_quota: 5000, cpu_period: 100_000 };
    await cri.updatePod(running.sandboxId, podLimits, { overhead });
    const stored = await storedBy(direct, running.sandboxId);
    // containerd before 2.3 does not have this call and stores nothing.
    const isStored = await direct.updatePod(running.sandboxId, podLimits, { overhead }).then(
      () => true,
      () => false,
    );
    expect(stored).toEqual(isStored ? { resources: { linux: podLimits }, overhead: { linux: overhead } } : {});
    await cri.exec(running.id('b'), 'dd', 'if=/dev/zero', 'of=/dev/shm/held', 'bs=1M', 'count=48');
    await refusal(cri.updatePod(running.sandboxId, { memory_limit_in_bytes: 32 * MiB }));
    expect(await storedBy(direct, running.sandboxId)).toEqual(stored);
  });

  test('KEP-1287: a pod limit below unreclaimable memory is rejected and changes nothing', async () => {
    const running = await pod();
    await cri.exec(running.id('b'), 'dd', 'if=/dev/zero', 'of=/dev/shm/held', 'bs=1M', 'count=48');
    const error = await refusal(
      cri.updatePod(running.sandboxId, { memory_limit_in_bytes: 32 * MiB, cpu_quota: 80_000 }),
    );
    expect(error.code).toBe(9);
    expect(running.read('memory.max')).toBe(String(192 * MiB));
    expect(running.read('cpu.max')).toBe('30000 100000');
  });
});

describe('ContainerStatus', () => {
  test('KEP-1287: ContainerStatus reports the values of the kernel', async () => {
    const running = await pod();
    const reported = async (client: CriClient) => (await client.containerStatus(running.id('a'))).resources!.linux!;
    const untouched = await reported(cri);
    expect(untouched).toEqual(await reported(direct));
    expect(untouched).toMatchObject({ cpu_shares: 102, cpu_quota: 10_000, memory_limit_in_bytes: 64 * MiB });
    writeFileSync(join(running.cgroup, running.id('a'), 'memory.max'), String(48 * MiB));
    writeFileSync(join(running.cgroup, running.id('a'), 'cpu.max'), 'max 100000');
    const changed = await reported(cri);
    expect(changed).toMatchObject({ cpu_shares: 102, cpu_quota: -1, memory_limit_in_bytes: 48 * MiB });
    expect(changed.oom_score_adj).toBe(untouched.oom_score_adj);
    expect(await reported(direct)).toEqual(untouched);
  });

  test('KEP-1287: ContainerStatus reports the values of the last update', async () => {
    const running = await pod();
    await cri.updateContainer(running.id('a'), limits(96, 15_000, 512));
    expect((await cri.containerStatus(running.id('a'))).resources!.linux).toMatchObject(limits(96, 15_000, 512));
  });
});

describe('volumes', () => {
  test('KEP-6030: a volume that follows the pod limit shrinks before it and grows after it', async () => {
    const running = await pod({ annotations: { 'volume.cri-resize-shim.io/cache': 'follow' } });
    await cri.updateContainer(running.id('a'), limits(128, 10_000));
    expect(running.volume('cache').size).toBe(256 * MiB);
    expect((await stepsOf(running)).map((step) => step.split(' ')[0])).toEqual(['pod', 'runtime', 'volume']);
    await cri.updateContainer(running.id('a'), limits(64, 10_000));
    expect(running.volume('cache').size).toBe(192 * MiB);
    expect((await stepsOf(running, 2)).map((step) => step.split(' ')[0])).toEqual(['volume', 'runtime', 'pod']);
    expect(await cri.exec(running.id('a'), 'df', '-m', '/cache')).toMatch(/\s192\s/);
  });

  test.each([
    ['64Mi', 64 * MiB],
    ['50%', 128 * MiB],
    ['50%/a', 64 * MiB],
    ['follow', 256 * MiB],
    ['fixed', 192 * MiB],
  ])('KEP-6030: a volume has the size of its annotation %s after an update', async (value, size) => {
    const running = await pod({ annotations: { 'volume.cri-resize-shim.io/cache': value } });
    await cri.updateContainer(running.id('a'), limits(128, 10_000));
    expect(running.volume('cache').size).toBe(size);
  });

  test('KEP-6030: a volume has the size of its annotation from the start of the pod', async () => {
    const running = await pod({ annotations: { 'volume.cri-resize-shim.io/cache': '50%' } });
    expect(running.volume('cache').size).toBe(96 * MiB);
  });

  test('a volume with a share of a container has its size from the creation of the container', async () => {
    const running = await pod({ annotations: { 'volume.cri-resize-shim.io/cache': '50%/a' } });
    expect(running.volume('cache').size).toBe(32 * MiB);
  });

  test('a volume keeps its other mount options and flags', async () => {
    const running = await pod({
      volumes: [{ name: 'cache', size: 192 * MiB, options: 'mode=0750,nr_inodes=1234,nosuid,noexec' }],
    });
    const mounts = (): Promise<string> => cri.exec(running.id('a'), 'grep', '/cache', '/proc/self/mounts');
    const before = await mounts();
    await cri.updateContainer(running.id('a'), limits(32, 10_000));
    expect(await mounts()).toBe(before.replace(`size=${192 * 1024}k`, `size=${160 * 1024}k`));
  });
});

describe('a second shim', () => {
  test('a shim finds pods that it has not created by asking the backend', async () => {
    const running = await pod();
    const second = await ShimProcess.start({ listen: 'unix:///run/second-shim/cri.sock' });
    const client = new CriClient(second.address);
    try {
      await client.updateContainer(running.id('a').slice(0, 10), limits(32, 10_000));
      expect(running.read('memory.max')).toBe(String(160 * MiB));
      expect(running.volume('cache').size).toBe(160 * MiB);
    } finally {
      client.close();
      expect(await second.stop()).toBe(0);
    }
  });

  test('a shim with --intercept=false forwards an update without a change of the pod limit', async () => {
    const running = await pod();
    const plain = await ShimProcess.start({ listen: 'unix:///run/plain-shim/cri.sock', args: ['--intercept=false'] });
    const client = new CriClient(plain.address);
    try {
      await client.updateContainer(running.id('a'), limits(96, 10_000));
      expect(running.read('memory.max', 'a')).toBe(String(96 * MiB));
      expect(running.read('memory.max')).toBe(String(192 * MiB));
    } finally {
      client.close();
      expect(await plain.stop()).toBe(0);
    }
  });
});

test('KEP-1287: RuntimeConfig is answered with the cgroup driver, also if containerd lacks the call', async () => {
  expect(await cri.call('RuntimeConfig', {})).toMatchObject({ linux: { cgroup_driver: 1 } });
});
