import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { CriClient, Resources } from '../support/cri/client.ts';
import { type RunningPod, runPod } from '../support/cri/pod.ts';
import { Served } from '../support/e2e/served.ts';
import { type ResizeClient, refusal } from '../support/resize-api/client.ts';

/** cpusets of containers and pods in the kernel, on a node with the CPUs 0 and 1. */

let served: Served;
let cri: CriClient;
let api: ResizeClient;
let running: RunningPod;

beforeAll(async () => {
  served = await Served.start({ name: 'cpuset-test', args: ['--foresight=false'] });
  ({ cri, api } = served);
});
afterEach(() => running.remove());
afterAll(() => served.stop());

async function pod(resources: Resources = {}): Promise<void> {
  const memory = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 50_000, cpu_period: 100_000 };
  running = await runPod(cri, {
    name: 'cpus',
    containers: [{ name: 'app', command: ['sleep', '1000000'], resources: { ...memory, ...resources } }],
  });
}
const update = (resources: Resources): Promise<object> => cri.updateContainer(running.id('app'), resources);
/** The content of the file, and the effective value. */
const cpus = (container?: string): string[] =>
  ['cpuset.cpus', 'cpuset.cpus.effective'].map((file) => running.read(file, container));
const memory = (container?: string): number => Number(running.read('memory.max', container)) / MiB;
/** The CPUs on which the kernel runs the container's process. */
async function allowed(): Promise<string | undefined> {
  const status = readFileSync(`/proc/${await cri.pidOf(running.id('app'))}/status`, 'utf8');
  return /^Cpus_allowed_list:\s+(\S+)$/m.exec(status)?.[1];
}

describe('UpdateContainerResources with a cpuset', () => {
  test('KEP-1287: UpdateContainerResources with a cpuset moves the process of the container to its CPUs', async () => {
    await pod();
    expect(cpus('app')).toEqual(['', '0-1']);
    await update({ cpuset_cpus: '1', cpuset_mems: '0' });
    expect([cpus('app'), running.read('cpuset.mems', 'app'), await allowed()]).toEqual([['1', '1'], '0', '1']);
    await update({ cpuset_cpus: '0,1' });
    expect([cpus('app'), await allowed()]).toEqual([['0-1', '0-1'], '0-1']);
  });

  test('UpdateContainerResources applies a cpuset together with limits', async () => {
    await pod();
    await update({ cpuset_cpus: '0', memory_limit_in_bytes: 96 * MiB, cpu_quota: 75_000, cpu_period: 100_000 });
    expect([cpus('app'), memory('app'), memory()]).toEqual([['0', '0'], 96, 96]);
    expect(running.read('cpu.max', 'app')).toBe('75000 100000');
  });

  test.each([
    ['is back at the cpuset of before', { cpuset_cpus: '0' }, ['0', '0']],
    // CRI cannot remove a cpuset.
    ['is back at the CPUs that were in force without one', {}, ['0-1', '0-1']],
  ])('KEP-1287: a container %s when the runtime refuses its cpuset update midway', async (_, resources, before) => {
    await pod(resources);
    const refused = update({ cpuset_cpus: '1', memory_limit_in_bytes: 96 * MiB, unified: { 'memory.nonsense': '1' } });
    await expect(refused).rejects.toMatchObject({ details: expect.stringContaining('memory.nonsense') as string });
    expect([cpus('app'), await allowed(), memory('app'), memory()]).toEqual([before, before[1], 64, 64]);
  });

  test('KEP-1287: UpdateContainerResources with a CPU that the node does not have changes nothing', async () => {
    await pod({ cpuset_cpus: '1' });
    await expect(update({ cpuset_cpus: '7', memory_limit_in_bytes: 96 * MiB })).rejects.toMatchObject({
      message: expect.stringContaining('cpuset.cpus') as string,
    });
    expect([cpus('app'), memory('app'), memory()]).toEqual([['1', '1'], 64, 64]);
  });

  test('KEP-1287: the cpuset of a container is kept by the next ResizePod', async () => {
    await pod();
    await update({ cpuset_cpus: '1' });
    await api.call('ResizePod', {
      pod: { uid: running.uid },
      containers: { app: { limits: { memory: '48Mi', cpu: '250m' } } },
    });
    expect([cpus('app'), memory('app'), running.read('cpu.max', 'app')]).toEqual([['1', '1'], 48, '25000 100000']);
  });
});

describe('UpdatePodSandboxResources with a cpuset', () => {
  test('KEP-1287: UpdatePodSandboxResources with a cpuset confines the containers of the pod to its CPUs', async () => {
    await pod();
    await cri.updatePod(running.sandboxId, { cpuset_cpus: '1', cpuset_mems: '0' });
    expect([cpus(), running.read('cpuset.mems')]).toEqual([['1', '1'], '0']);
    expect([cpus('app'), await allowed()]).toEqual([['', '1'], '1']);
    await cri.updatePod(running.sandboxId, { cpuset_cpus: '0-1' });
    expect([cpus(), await allowed()]).toEqual([['0-1', '0-1'], '0-1']);
  });

  test.each([
    ['cpuset_mems', { cpuset_mems: '5' }],
    ['unified', { unified: { 'cpuset.mems': '5' } }],
  ])('KEP-1287: the cpuset of a pod is rolled back if the kernel refuses %s in the same update', async (_, refused) => {
    await pod();
    await cri.updatePod(running.sandboxId, { cpuset_cpus: '0' });
    const call = cri.updatePod(running.sandboxId, { cpuset_cpus: '1', memory_limit_in_bytes: 96 * MiB, ...refused });
    expect(await refusal(call)).toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect([cpus(), running.read('cpuset.mems'), memory()]).toEqual([['0', '0'], '', 64]);
    expect(await allowed()).toBe('0');
  });
});
