import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient, Resources } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Kubelet, removeFiles } from '../../support/e2e/kubelet.ts';
import { Served } from '../../support/e2e/served.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';
import { type Answer, type ResizeClient, refusal } from '../../support/resize-api/client.ts';

/** ResizePod as kubelet would admit it: with kubelet's state files, and the specs and the node of the API server. */

const SLEEP = ['sleep', '1000000'];
const folder = mkdtempSync(join(tmpdir(), 'admission-'));

let server: FakeApiServer;
let served: Served;
let cri: CriClient;
let api: ResizeClient;
let kubelet: Kubelet;
const pods: RunningPod[] = [];

beforeAll(async () => {
  mkdirSync(KUBELET_ROOT, { recursive: true });
  server = await new FakeApiServer().start();
  server.nodes.set('node-1', { cpu: '300', memory: '1000Mi' });
  const kubeconfig = ['--kubeconfig', server.kubeconfig(join(folder, 'kubeconfig')), '--node-name', 'node-1'];
  const state = ['--state-folder', mkdtempSync(join(folder, 'state-'))];
  served = await Served.start({ name: 'admission-test', args: [...state, ...kubeconfig] });
  ({ cri, api } = served);
  kubelet = new Kubelet(cri);
  await served.shim.waitForLog(({ msg }) => msg === 'watch of pod annotations started');
});
afterEach(async () => {
  for (const file of ['cpu_manager_state', 'memory_manager_state']) rmSync(join(KUBELET_ROOT, file), { force: true });
  for (const running of pods.splice(0)) {
    kubelet.forget(running);
    await running.remove();
  }
});
afterAll(async () => {
  await served.stop();
  await server.stop();
  removeFiles();
  rmSync(folder, { recursive: true });
});

/** A pod with a container `app`. */
async function pod(name: string, resources: Resources, more: Partial<PodSpec> = {}): Promise<RunningPod> {
  const running = await runPod(cri, { name, containers: [{ name: 'app', command: SLEEP, resources }], ...more });
  pods.push(running);
  return running;
}
const memory = (mebibytes: number): Resources => ({ memory_limit_in_bytes: mebibytes * MiB });

interface Changes {
  readonly limits?: { readonly cpu?: string; readonly memory?: string };
  readonly requests?: { readonly cpu?: string; readonly memory?: string };
}
const resize = (running: RunningPod, app: Changes, more: object = {}): Promise<Answer> =>
  api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, containers: { app }, ...more });
const limitOf = (running: RunningPod): number => Number(running.read('memory.max', 'app')) / MiB;

/** Sets the pod's object in the API server, and waits until the shim knows it. */
async function inKubernetes(running: RunningPod, name: string, spec: object): Promise<void> {
  const { uid } = running;
  server.set({ uid, name, namespace: 'default', nodeName: 'node-1', annotations: {}, spec });
  const source = async (): Promise<unknown> => {
    const request = { pod_sandbox_id: running.sandboxId, verbose: true };
    const { info } = await cri.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
    return (JSON.parse(info['cri-resize-shim']!) as { declared: { source: string } }).declared.source;
  };
  await expect.poll(source).toBe('spec');
}

describe('A5: the requests of a pod', () => {
  test('A5: a request above the allocatable of the node is rejected, and a limit above it is applied', async () => {
    const running = await pod('web', memory(100));
    const tooMuch = { limits: { memory: '2000Mi' }, requests: { memory: '1001Mi' } };
    // The node is read concurrently with the pods.
    const message = async (): Promise<string> => (await refusal(resize(running, tooMuch, { dry_run: true }))).message;
    await expect.poll(message).toContain("a memory request of 1001Mi is more than 1000Mi: the node's allocatable");
    expect(await refusal(resize(running, tooMuch))).toMatchObject({ code: 9, reason: 'EXCEEDS_NODE' });
    expect(limitOf(running)).toBe(100);
    await resize(running, { limits: { memory: '2000Mi', cpu: '500' }, requests: { memory: '1000Mi', cpu: '200' } });
    expect(limitOf(running)).toBe(2000);
    expect(running.read('cpu.max', 'app')).toBe('50000000 100000');
  });

  test('A5: a request that does not fit next to other pods is deferred, and the pod with the higher priority is resized first', async () => {
    const [other, low, high] = [
      await pod('other', memory(600)),
      await pod('low', memory(100)),
      await pod('high', memory(100)),
    ];
    kubelet.runs(other, { containers: { app: 600 } });
    kubelet.runs(low, { containers: { app: 100 } });
    kubelet.runs(high, { containers: { app: 100 } });
    const spec = { containers: [{ name: 'app', resources: { limits: { memory: '100Mi' } } }] };
    await inKubernetes(high, 'high', { ...spec, priority: 1000 });
    await inKubernetes(low, 'low', spec);

    const wanted = { limits: { memory: '350Mi' }, requests: { memory: '350Mi' } };
    const refused = await refusal(resize(low, wanted));
    expect(refused).toMatchObject({ code: 9, reason: 'NODE_FULL' });
    expect(refused.about).toMatchObject({ asked: '350Mi', found: '300Mi' });
    const ids: string[] = [];
    for (const running of [low, high]) {
      const { resize: deferred } = await resize(running, wanted, { defer: true });
      expect(deferred).toMatchObject({ state: 'DEFERRED', reason: 'NODE_FULL' });
      ids.push((deferred as unknown as { id: string }).id);
    }
    const states = (): Promise<unknown[]> =>
      Promise.all(ids.map(async (id) => (await api.call('GetResize', { id }))['resize']?.['state']));

    // There is room for one of the two pods.
    kubelet.admit(other, { containers: { app: 350 } });
    await expect.poll(states, { timeout: 30_000 }).toEqual(['DEFERRED', 'COMPLETED']);
    expect([limitOf(low), limitOf(high)]).toEqual([100, 350]);
    kubelet.forget(other);
    await expect.poll(states, { timeout: 30_000 }).toEqual(['COMPLETED', 'COMPLETED']);
    expect(limitOf(low)).toBe(350);
  });
});

describe('kubelet’s static managers', () => {
  test('KEP-1287: a change of CPU of a container with exclusive CPUs, or of memory of one with pinned memory, is rejected', async () => {
    const running = await pod('web', memory(100));
    const write = (name: string, state: object): void =>
      writeFileSync(join(KUBELET_ROOT, name), JSON.stringify({ ...state, checksum: 1 }), { mode: 0o600 });
    const cpus = { policyName: 'static', defaultCpuSet: '0', entries: { [running.uid]: { app: '1-2' } } };
    write('cpu_manager_state', cpus);
    const block = { numaAffinity: [0], type: 'memory', size: 100 * MiB };
    write('memory_manager_state', {
      policyName: 'Static',
      machineState: {},
      entries: { [running.uid]: { app: [block] } },
    });
    const refusedCpu = await refusal(resize(running, { limits: { cpu: '500m' } }));
    expect(refusedCpu).toMatchObject({ code: 9, reason: 'EXCLUSIVE_CPUS' });
    expect(refusedCpu.about).toMatchObject({ container: 'app', found: '1-2' });
    expect((await refusal(resize(running, { limits: { memory: '200Mi' } }))).reason).toBe('PINNED_MEMORY');
    expect([limitOf(running), running.read('cpu.max', 'app')]).toEqual([100, 'max 100000']);
    write('cpu_manager_state', { ...cpus, entries: {} });
    await resize(running, { limits: { cpu: '500m' } });
    expect(running.read('cpu.max', 'app')).toBe('50000 100000');
  });
});

describe('the QoS class and the resizePolicy', () => {
  test('KEP-1287: a limit for a BestEffort pod is rejected, because it would change the QoS class', async () => {
    const running = await pod('web', {}, { qos: 'besteffort', podMemory: 'max' });
    const refused = await refusal(resize(running, { limits: { memory: '100Mi' } }));
    expect(refused).toMatchObject({ code: 9, reason: 'QOS_CLASS_CHANGES' });
    expect(refused.about).toMatchObject({ asked: 'Burstable', found: 'BestEffort' });
    expect(running.read('memory.max', 'app')).toBe('max');
  });

  test('a limit without request for a Guaranteed pod is rejected, and limit and request together are applied', async () => {
    const resources = { ...memory(100), cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 };
    const running = await pod('web', resources, { qos: 'guaranteed' });
    kubelet.runs(running, { containers: { app: 100 } });
    expect((await refusal(resize(running, { limits: { memory: '200Mi' } }))).reason).toBe('QOS_CLASS_CHANGES');
    expect(limitOf(running)).toBe(100);
    await resize(running, { limits: { memory: '200Mi' }, requests: { memory: '200Mi' } });
    expect(limitOf(running)).toBe(200);
  });

  test('a CPU request of 1m for a Guaranteed pod is rejected, because the pod would become Burstable', async () => {
    const resources = { ...memory(100), cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 };
    const running = await pod('web', resources, { qos: 'guaranteed' });
    const amounts = { cpu: '100m', memory: '100Mi' };
    await inKubernetes(running, 'web', {
      containers: [{ name: 'app', resources: { limits: amounts, requests: amounts } }],
    });
    const refused = await refusal(resize(running, { requests: { cpu: '1m' } }));
    expect(refused).toMatchObject({ code: 9, reason: 'QOS_CLASS_CHANGES' });
    expect((await cri.containerStatus(running.id('app'))).resources?.linux?.cpu_shares).toBe(102);
  });

  test('KEP-1287: a resource with the resizePolicy RestartContainer is rejected, and the other resource is resized', async () => {
    const running = await pod('web', memory(100));
    const resizePolicy = [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }];
    const resources = { limits: { memory: '100Mi' } };
    await inKubernetes(running, 'web', { containers: [{ name: 'app', resources, resizePolicy }] });
    const refused = await refusal(resize(running, { limits: { memory: '200Mi' } }));
    expect(refused).toMatchObject({ code: 9, reason: 'RESTART_REQUIRED' });
    expect(refused.message).toContain('resize the pod through the API server');
    await resize(running, { limits: { cpu: '500m' } });
    expect([limitOf(running), running.read('cpu.max', 'app')]).toEqual([100, '50000 100000']);
  });
});
