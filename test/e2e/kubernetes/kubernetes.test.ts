import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type PodSpec, RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { Kubelet, removeFiles } from '../../support/e2e/kubelet.ts';
import { FakeApiServer, makeCertificate } from '../../support/kubernetes/fake-api-server.ts';

/** Annotations of pods in Kubernetes. A server of the test replaces the API server. */

const LISTEN = 'unix:///run/kubernetes-test/cri.sock';
const CACHE = 'volume.cri-resize-shim.io/cache';

let folder: string;
let server: FakeApiServer;
let shim: ShimProcess;
let cri: CriClient;
const direct = new CriClient('unix:///run/containerd/containerd.sock');
const pods: RunningPod[] = [];

async function start(kubeconfig: string): Promise<void> {
  const args = ['--state-folder', join(folder, 'state'), '--kubeconfig', kubeconfig, '--node-name', 'node-1'];
  shim = await ShimProcess.start({ listen: LISTEN, args });
  cri = new CriClient(LISTEN);
}
async function stop(): Promise<void> {
  cri.close();
  expect(await shim.stop()).toBe(0);
}
const watched = (): Promise<unknown> => shim.waitForLog(({ msg }) => msg === 'watch of pod annotations started');

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kubernetes-'));
});
afterEach(async () => {
  try {
    for (const pod of pods.splice(0)) await pod.remove();
    await stop();
  } finally {
    shim.process.kill('SIGKILL');
    await server.stop();
    rmSync(folder, { recursive: true });
  }
});
afterAll(() => direct.close());

/**
 * Creates a pod through the shim, so that the shim knows it. The pod is removed directly, because another shim may run
 * by then.
 */
async function run(spec: PodSpec): Promise<RunningPod> {
  const { uid, sandboxId, containers, volumes } = await runPod(cri, spec);
  const running = new RunningPod(direct, uid, sandboxId, containers, volumes);
  pods.push(running);
  return running;
}

/** Creates a pod as kubelet does: through CRI, and known to the API server. */
async function pod(annotations: PodSpec['annotations'] = {}): Promise<RunningPod> {
  const resources = { memory_limit_in_bytes: 128 * MiB, cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 };
  const running = await run({
    name: 'web',
    containers: [{ name: 'a', command: ['sleep', '1000000'], resources, mounts: { cache: '/cache' } }],
    volumes: [{ name: 'cache', size: 64 * MiB }],
    annotations,
  });
  server.set({ uid: running.uid, name: 'web', namespace: 'default', nodeName: 'node-1', annotations });
  return running;
}

const annotate = (running: RunningPod, size: string | undefined): void =>
  server.annotate(running.uid, { [CACHE]: size });

interface Readiness {
  readonly ready: boolean;
  readonly checks: readonly { readonly name: string; readonly ready: boolean; readonly says: string }[];
}
async function readiness(): Promise<Readiness> {
  const { info } = await cri.call<{ info: Record<string, string> }>('Status', { verbose: true });
  return JSON.parse(info['cri-resize-shim']!) as Readiness;
}
const kubernetesCheck = async () => (await readiness()).checks.find(({ name }) => name === 'kubernetes');

describe('an annotation that changes in Kubernetes', () => {
  beforeEach(async () => {
    server = await new FakeApiServer().start();
    await start(server.kubeconfig(join(folder, 'kubeconfig')));
    await watched();
  });

  test('a memory decrease that kubelet has admitted but not applied is reported in one event', async () => {
    const running = await pod();
    const kubelet = new Kubelet(cri);
    kubelet.runs(running, { containers: { a: 128 } });
    await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/held', 'bs=1M', 'count=60');
    kubelet.admit(running, { containers: { a: 48 } });
    const event = await server.event('MemoryDecreaseDeferred');
    expect(event).toMatchObject({
      type: 'Warning',
      action: 'LowerMemory',
      regarding: { kind: 'Pod', namespace: 'default', name: 'web', uid: running.uid },
      note: expect.stringMatching(
        /^container a of pod default\/web: kubelet is to lower memory.max from 134217728 to 50331648, /,
      ) as string,
    });
    removeFiles();
  });

  test('H2: a pod of another namespace that claims the uid of a pod changes nothing, and is counted', async () => {
    const running = await pod();
    const owner = { apiVersion: 'v1', kind: 'Node', name: 'node-1', uid: 'uid-node', controller: true };
    const claim = { 'kubernetes.io/config.mirror': running.uid, [CACHE]: '1Mi' };
    const others = { nodeName: 'node-1', annotations: claim, ownerReferences: [owner] };
    server.set({ ...others, uid: 'uid-attacker', name: 'attacker', namespace: 'tenant' });
    const ignored = await shim.waitForLog(({ msg }) => msg.startsWith('pod object ignored'));
    expect(ignored).toMatchObject({ namespace: 'tenant', pod: 'attacker', uid: running.uid, reason: 'other_pod' });
    // Requests of one watch are made in its order, so this one follows the claim.
    annotate(running, '96Mi');
    expect((await server.event('VolumeResized')).note).toBe('volume cache: 64Mi -> 96Mi, as requested (96Mi)');
    expect(server.events).toHaveLength(1);
    // Also not under its own name and namespace: the running pod is not static.
    server.delete(running.uid);
    server.set({ ...others, uid: 'uid-second', name: 'web', namespace: 'default' });
    expect(await shim.waitForLog(({ reason }) => reason === 'not_static')).toMatchObject({ pod: 'web' });
    expect(server.events).toHaveLength(1);
    expect(running.volume('cache').size).toBe(96 * MiB);
  });

  test('KEP-6030: an annotation resizes the volume without loss of files, and an event reports it', async () => {
    const running = await pod();
    await cri.exec(running.id('a'), 'sh', '-c', 'echo kept > /cache/file');
    annotate(running, '96Mi');
    const event = await server.event('VolumeResized');
    expect(running.volume('cache').size).toBe(96 * MiB);
    expect(event).toMatchObject({
      type: 'Normal',
      note: 'volume cache: 64Mi -> 96Mi, as requested (96Mi)',
      reportingController: 'cri-resize-shim',
      reportingInstance: 'node-1',
      regarding: { kind: 'Pod', namespace: 'default', name: 'web', uid: running.uid },
    });
    annotate(running, '25%');
    expect((await server.event('VolumeResized', 2)).note).toBe('volume cache: 96Mi -> 32Mi, as requested (25%)');
    expect(running.volume('cache').size).toBe(32 * MiB);
    // From here on the volume is a quarter of the pod's limit.
    await cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 256 * MiB });
    await expect.poll(() => running.volume('cache').size).toBe(64 * MiB);
    annotate(running, undefined);
    expect(await cri.exec(running.id('a'), 'cat', '/cache/file')).toBe('kept\n');
    expect(running.volume('cache').size).toBe(64 * MiB);
    // The update by a CRI client has its own events.
    const reasons = server.events.map(({ reason }) => reason);
    expect(reasons).toEqual(['VolumeResized', 'VolumeResized', 'ResizeStarted', 'ResizeCompleted']);
  });

  test('a volume size below the stored files is Deferred with figures in one event, and applied once files are removed', async () => {
    const running = await pod();
    await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
    annotate(running, '16Mi');
    const event = await server.event('VolumeResizeDeferred');
    expect(event.type).toBe('Warning');
    expect(event.note).toContain('requested: 16Mi');
    expect(event.note).toContain(`cannot shrink from ${64 * MiB} to ${16 * MiB} bytes: ${24 * MiB} are stored in it`);
    expect(running.volume('cache').size).toBe(64 * MiB);
    // Retries send no further event.
    const retried = (count: number): Promise<unknown> =>
      expect
        .poll(() => shim.log.filter(({ msg }) => msg === 'deferred resize retried').length, {
          timeout: 60_000,
        })
        .toBeGreaterThanOrEqual(count);
    await retried(3);
    expect(server.events).toHaveLength(1);
    await cri.exec(running.id('a'), 'rm', '/cache/file');
    expect((await server.event('VolumeResized')).note).toBe('volume cache: 64Mi -> 16Mi, as requested (16Mi)');
    expect(running.volume('cache').size).toBe(16 * MiB);
  });

  test('KEP-6030: a volume size above the memory limit is applied with a warning, and an invalid size is rejected', async () => {
    const running = await pod();
    annotate(running, '160Mi');
    expect((await server.event('VolumeSizeExceedsMemoryLimit')).note).toMatch(
      /^volume cache has 160Mi, more than the memory limit of the pod, 128Mi/,
    );
    expect(running.volume('cache').size).toBe(160 * MiB);
    annotate(running, 'plenty');
    expect((await server.event('VolumeResizeInfeasible')).note).toContain('INVALID_ANNOTATION');
    server.annotate(running.uid, { 'volume.cri-resize-shim.io/none': '8Mi' });
    expect((await server.event('VolumeResizeInfeasible', 2)).note).toContain('UNKNOWN_VOLUME');
    expect(running.volume('cache').size).toBe(160 * MiB);
  });

  test('KEP-6030: a changed sizeLimit in the spec resizes the volume without a resize of limits, also while the shim is down', async () => {
    const running = await pod();
    const sizeLimit = (size: string): void => {
      const volumes = [{ name: 'cache', emptyDir: { medium: 'Memory', sizeLimit: size } }];
      const spec = { containers: [{ name: 'a' }], volumes };
      const { uid } = running;
      server.set({ uid, name: 'web', namespace: 'default', nodeName: 'node-1', annotations: {}, spec });
    };
    const becomes = (size: number): Promise<void> =>
      expect.poll(() => running.volume('cache').size, { timeout: 90_000 }).toBe(size * MiB);
    // kubelet has mounted the volume with this size.
    sizeLimit('64Mi');
    const policy = async (): Promise<unknown> => {
      const request = { pod_sandbox_id: running.sandboxId, verbose: true };
      const { info } = await cri.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
      return (JSON.parse(info['cri-resize-shim']!) as { volumes: { cache: { policy: string } } }).volumes.cache.policy;
    };
    await expect.poll(policy).toBe('follow, at most 64Mi');
    await cri.exec(running.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
    sizeLimit('96Mi');
    await becomes(96);
    expect((await server.event('ResizeCompleted')).note).toMatch(/^the pod is resized: volume cache 64Mi -> 96Mi/);
    sizeLimit('256Mi');
    // The memory limit of the pod.
    await becomes(128);
    sizeLimit('16Mi');
    expect((await server.event('ResizeDeferred')).note).toContain(`${24 * MiB} are stored in it`);
    // It prevents no other resize of the pod.
    await cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 160 * MiB });
    expect(running.volume('cache').size).toBe(128 * MiB);
    await cri.exec(running.id('a'), 'rm', '/cache/file');
    await becomes(16);
    await server.event('ResizeCompleted', 4);
    expect(server.events.filter(({ reason }) => reason === 'ResizeDeferred')).toHaveLength(1);
    await stop();
    sizeLimit('8Mi');
    await start(join(folder, 'kubeconfig'));
    await becomes(8);
  });

  test('an annotation that changes while the shim is down is applied at its start, and an applied one is not repeated', async () => {
    const running = await pod({ [CACHE]: '64Mi' });
    annotate(running, '96Mi');
    await server.event('VolumeResized');
    await stop();
    await start(join(folder, 'kubeconfig'));
    await watched();
    // The shim handles this pod after the other one, so the other one has been handled by then.
    const other = await pod();
    annotate(other, '32Mi');
    await server.event('VolumeResized', 2);
    expect(server.events.map(({ regarding }) => regarding.uid)).toEqual([running.uid, other.uid]);
    await stop();
    annotate(running, '48Mi');
    await start(join(folder, 'kubeconfig'));
    expect((await server.event('VolumeResized', 3)).note).toBe('volume cache: 96Mi -> 48Mi, as requested (48Mi)');
    expect(running.volume('cache').size).toBe(48 * MiB);
    expect(server.events).toHaveLength(3);
  });

  test('an annotation is applied to a pod that Kubernetes knows before it runs on the node', async () => {
    const uid = '6f1de7a5-9c3c-4b7e-8f4e-0d6a3b1f2c01';
    const annotations = { [CACHE]: '96Mi' };
    server.set({ uid, name: 'web', namespace: 'default', nodeName: 'node-1', annotations });
    const running = await run({
      uid,
      name: 'web',
      containers: [{ name: 'a', command: ['sleep', '1000000'], resources: { memory_limit_in_bytes: 128 * MiB } }],
      volumes: [{ name: 'cache', size: 64 * MiB }],
    });
    await server.event('VolumeResized');
    expect(running.volume('cache').size).toBe(96 * MiB);
  });

  test("an API server that stops and returns does not affect the shim's other functions", async () => {
    const running = await pod();
    expect(await kubernetesCheck()).toMatchObject({ ready: true });
    await server.stop();
    await expect.poll(async () => (await kubernetesCheck())?.says).toMatch(/^pods are not watched: ECONN/);
    expect((await readiness()).ready).toBe(true);
    await cri.updateContainer(running.id('a'), { memory_limit_in_bytes: 160 * MiB });
    expect(running.read('memory.max')).toBe(String(160 * MiB));
    annotate(running, '96Mi');
    await server.start();
    await server.event('VolumeResized');
    expect(running.volume('cache').size).toBe(96 * MiB);
    expect(shim.log.filter(({ msg }) => msg.startsWith('watch of pod annotations failed')).length).toBe(1);
  });
});

test('the shim uses the service account of its pod over TLS in a cluster', async () => {
  server = await new FakeApiServer({ server: makeCertificate('kubernetes') }).start();
  const account = '/var/run/secrets/kubernetes.io/serviceaccount';
  mkdirSync(account, { recursive: true });
  writeFileSync(join(account, 'token'), server.token);
  writeFileSync(join(account, 'ca.crt'), server.tls!.server.certificate);
  process.env['KUBERNETES_SERVICE_HOST'] = '127.0.0.1';
  process.env['KUBERNETES_SERVICE_PORT'] = new URL(server.url).port;
  try {
    await start('in-cluster');
    await watched();
    const running = await pod();
    annotate(running, '96Mi');
    await server.event('VolumeResized');
    expect(running.volume('cache').size).toBe(96 * MiB);
  } finally {
    delete process.env['KUBERNETES_SERVICE_HOST'];
    delete process.env['KUBERNETES_SERVICE_PORT'];
    rmSync(account, { recursive: true });
  }
});
