import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Kubelet, removeFiles } from '../../support/e2e/kubelet.ts';
import { Served } from '../../support/e2e/served.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';
import { type Answer, type ResizeClient, refusal } from '../../support/resize-api/client.ts';

/** Pods as declared: containers that do not run, init and ephemeral ones, and the sources that report them. */

const SLEEP = ['sleep', '1000000'];
const folder = mkdtempSync(join(tmpdir(), 'declared-'));

let server: FakeApiServer;
let served: Served;
let cri: CriClient;
let api: ResizeClient;
let kubelet: Kubelet;
const pods: RunningPod[] = [];

async function start(...args: string[]): Promise<void> {
  mkdirSync(KUBELET_ROOT, { recursive: true });
  server = await new FakeApiServer().start();
  const kubeconfig = ['--kubeconfig', server.kubeconfig(join(folder, 'kubeconfig')), '--node-name', 'node-1'];
  const state = ['--state-folder', mkdtempSync(join(folder, 'state-'))];
  served = await Served.start({ name: 'declared-test', args: [...state, ...kubeconfig, ...args] });
  ({ cri, api } = served);
  kubelet = new Kubelet(cri);
  await served.shim.waitForLog(({ msg }) => msg === 'watch of pod annotations started');
}

async function stop(): Promise<void> {
  await removePods();
  await served.stop();
  await server.stop();
  removeFiles();
}

async function removePods(): Promise<void> {
  for (const running of pods.splice(0)) {
    kubelet.forget(running);
    await running.remove();
  }
}
afterEach(removePods);
afterAll(() => rmSync(folder, { recursive: true }));

const memory = (mebibytes: number) => ({ memory_limit_in_bytes: mebibytes * MiB });
const sleeping = (name: string, mebibytes: number): PodSpec['containers'][number] => ({
  name,
  command: SLEEP,
  resources: mebibytes === 0 ? {} : memory(mebibytes),
});

/** A pod with these containers, each in mebibytes of memory (0: no limit), and with this limit of its own. */
async function pod(
  podMemory: number,
  containers: PodSpec['containers'],
  more: Partial<PodSpec> = {},
): Promise<RunningPod> {
  const running = await runPod(cri, { name: 'web', podMemory: podMemory * MiB, containers, ...more });
  pods.push(running);
  return running;
}

const limitOf = (running: RunningPod): number => Number(running.read('memory.max')) / MiB;
const update = (running: RunningPod, name: string, mebibytes: number): Promise<unknown> =>
  cri.updateContainer(running.id(name), memory(mebibytes));
const resize = (
  running: RunningPod,
  limits: Readonly<Record<string, number>>,
  requests: Readonly<Record<string, string>> = {},
): Promise<Answer> =>
  api.call('ResizePod', {
    pod: { sandbox_id: running.sandboxId },
    containers: Object.fromEntries(
      Object.entries(limits).map(([name, size]) => [name, { limits: { memory: `${size}Mi` }, requests }]),
    ),
  });

interface Declared {
  readonly source: string;
  readonly containers: Readonly<
    Record<string, { readonly kind: string; readonly state: string; readonly limits?: object }>
  >;
}
async function declared(running: RunningPod): Promise<Declared> {
  const request = { pod_sandbox_id: running.sandboxId, verbose: true };
  const { info } = await cri.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
  return (JSON.parse(info['cri-resize-shim']!) as { declared: Declared }).declared;
}

/** The pod's object in the API server: the shim knows it when its status says so. */
async function inKubernetes(running: RunningPod, spec: object): Promise<void> {
  server.set({ uid: running.uid, name: 'web', namespace: 'default', nodeName: 'node-1', annotations: {}, spec });
  while ((await declared(running)).source !== 'spec') await new Promise((resolve) => setImmediate(resolve));
}
/** The pod's containers in kubelet's state, with their limits in MiB. */
function inKubelet(running: RunningPod, memoryLimits: Parameters<Kubelet['runs']>[1]): Promise<void> {
  kubelet.runs(running, memoryLimits);
  return Promise.resolve();
}
const limited = (name: string, size: number, more: object = {}) => ({
  name,
  resources: { limits: { memory: `${size}Mi` } },
  ...more,
});

describe('a pod whose containers do not all run', () => {
  beforeAll(() => start());
  afterAll(stop);

  test('A4: a container in CrashLoopBackOff counts in the pod limit, by inference', async () => {
    const running = await pod(300, [sleeping('a', 100), sleeping('b', 200)]);
    await cri.call('StopContainer', { container_id: running.id('b'), timeout: 0 });
    await update(running, 'a', 250);
    expect(limitOf(running)).toBe(450);
    await update(running, 'a', 50);
    expect(limitOf(running)).toBe(250);
    expect(await declared(running)).toEqual({
      source: 'inference',
      containers: {
        a: { kind: 'unknown', state: 'running' },
        b: { kind: 'unknown', state: 'ended', limits: { memory: '200Mi' } },
      },
    });
  });

  test("A4: a container whose image is being pulled counts in the pod limit, by kubelet's state", async () => {
    const running = await pod(300, [sleeping('a', 100)]);
    kubelet.runs(running, { containers: { a: 100, b: 200 } });
    await update(running, 'a', 250);
    expect(limitOf(running)).toBe(450);
    expect(await declared(running)).toMatchObject({
      source: 'kubelet-state',
      containers: { b: { kind: 'unknown', state: 'declared', limits: { memory: '200Mi' } } },
    });
  });

  test("A4: a container whose image is being pulled counts in the pod limit, by the pod's spec", async () => {
    const running = await pod(300, [sleeping('a', 100)]);
    await inKubernetes(running, { containers: [limited('a', 100), limited('b', 200)] });
    await resize(running, { a: 250 });
    expect(limitOf(running)).toBe(450);
    expect((await declared(running)).containers['b']).toEqual({
      kind: 'app',
      state: 'declared',
      limits: { memory: '200Mi' },
    });
  });
});

describe('a pod with an ephemeral container', () => {
  beforeAll(() => start());
  afterAll(stop);

  test.each([
    ["kubelet's state", (running: RunningPod) => inKubelet(running, { containers: { web: 100 } })],
    [
      "the pod's spec",
      (running: RunningPod) =>
        inKubernetes(running, { containers: [limited('web', 100)], ephemeralContainers: [{ name: 'debugger' }] }),
    ],
  ])('A2: the pod limit follows the other containers and ignores an ephemeral container, by %s', async (_, tell) => {
    const running = await pod(100, [sleeping('web', 100), sleeping('debugger', 0)]);
    await tell(running);
    await update(running, 'web', 200);
    expect(limitOf(running)).toBe(200);
    await resize(running, { web: 400 });
    expect(limitOf(running)).toBe(400);
    await resize(running, { web: 100 });
    expect(limitOf(running)).toBe(100);
    await update(running, 'debugger', 50);
    expect(limitOf(running)).toBe(100);
    expect((await refusal(resize(running, { debugger: 60 }))).reason).toBe('EPHEMERAL_CONTAINER_NOT_RESIZABLE');
  });

  test('A2: the pod limit is raised although an ephemeral container has no limit, by inference', async () => {
    const running = await pod(100, [sleeping('web', 100), sleeping('debugger', 0)]);
    await resize(running, { web: 400 });
    expect(limitOf(running)).toBe(400);
  });
});

describe('a pod with an init container', () => {
  beforeAll(() => start());
  afterAll(stop);

  test.each([
    ["kubelet's state", (running: RunningPod) => inKubelet(running, { containers: { web: 190, log: 100 } })],
    [
      "the pod's spec",
      (running: RunningPod) =>
        inKubernetes(running, {
          initContainers: [limited('init', 300)],
          containers: [limited('web', 190), limited('log', 100)],
        }),
    ],
  ])(
    'A3: lowering a running init container leaves the sum of the app containers in the pod limit, by %s',
    async (_, tell) => {
      const running = await pod(300, [sleeping('init', 300)]);
      await tell(running);
      await update(running, 'init', 30);
      expect(running.read('memory.max', 'init')).toBe(String(30 * MiB));
      expect(limitOf(running)).toBe(290);
    },
  );

  const starting = {
    initContainers: [limited('init', 300)],
    containers: [limited('web', 190), limited('log', 100)],
  };

  test('KEP-1287: a resize of a running init container raises the pod limit, and leaves the app containers their sum', async () => {
    const running = await pod(300, [sleeping('init', 300)]);
    // kubelet 1.36 lists init containers.
    kubelet.runs(running, { containers: { init: 300, web: 190, log: 100 } });
    await inKubernetes(running, starting);
    await resize(running, { init: 400 });
    expect([limitOf(running), running.read('memory.max', 'init')]).toEqual([400, String(400 * MiB)]);
    await resize(running, { init: 60 }, { memory: '60Mi' });
    expect([limitOf(running), running.read('memory.max', 'init')]).toEqual([290, String(60 * MiB)]);
  });

  test('KEP-1287: a resize of an init container is rejected for a kubelet up to 1.35 and for a resizePolicy that restarts it', async () => {
    const running = await pod(300, [sleeping('init', 300)]);
    kubelet.runs(running, { containers: { web: 190, log: 100 } });
    await inKubernetes(running, starting);
    const old = await refusal(resize(running, { init: 60 }));
    expect([old.reason, old.message]).toEqual([
      'INIT_CONTAINER_NOT_RESIZABLE',
      expect.stringContaining('this kubelet does not resize init containers'),
    ]);
    kubelet.forget(running);
    const resizePolicy = [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }];
    const another = await pod(300, [sleeping('init', 300)]);
    await inKubernetes(another, { ...starting, initContainers: [limited('init', 300, { resizePolicy })] });
    expect((await refusal(resize(another, { init: 60 }))).reason).toBe('INIT_CONTAINER_NOT_RESIZABLE');
    expect([running, another].map((one) => one.read('memory.max', 'init'))).toEqual(Array(2).fill(String(300 * MiB)));
  });

  test('A3: a sidecar counts in the pod limit together with a later init container', async () => {
    const running = await pod(310, [sleeping('proxy', 10), sleeping('init', 300)]);
    kubelet.runs(running, { containers: { proxy: 10, web: 200 } });
    expect((await declared(running)).containers['proxy']?.kind).toBe('sidecar');
    await update(running, 'init', 150);
    expect(limitOf(running)).toBe(210);
  });

  test('A9: a container that ended with 0 does not block a resize, unless it is known to be an init container', async () => {
    const ended = { name: 'done', command: ['true'], resources: memory(50), init: true as const };
    const running = await pod(150, [ended, sleeping('web', 100)]);
    await resize(running, { done: 60, web: 120 });
    expect(running.read('memory.max', 'web')).toBe(String(120 * MiB));
    // A source that specifies the kind makes the shim reject the resize.
    kubelet.runs(running, { containers: { web: 120 } });
    expect((await refusal(resize(running, { done: 70, web: 130 }))).reason).toBe('INIT_CONTAINER_ENDED');
    expect(running.read('memory.max', 'web')).toBe(String(120 * MiB));
  });
});

describe('a pod with a pod-level limit', () => {
  beforeAll(() => start());
  afterAll(stop);

  const FILES = ['memory.max', 'cpu.max'] as const;
  const cpu = (quota: number) => ({ cpu_quota: quota, cpu_period: 100_000 });
  /** As kubelet creates it: without a CPU request, the shares follow from the limit of the pod. */
  const inheriting = (name: string) => ({
    name,
    command: SLEEP,
    resources: { ...memory(128), ...cpu(10_000), cpu_shares: 102 },
  });
  const values = (running: RunningPod, ...names: string[]): string[][] =>
    [undefined, ...names].map((name) => FILES.map((file) => running.read(file, name)));
  const level = (memoryLimit: string, cpuLimit: string): object => ({
    resources: { limits: { memory: memoryLimit, cpu: cpuLimit } },
  });
  const resizeLevel = (running: RunningPod, memoryLimit: string, cpuLimit: string): Promise<Answer> =>
    api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, ...level(memoryLimit, cpuLimit) });

  // kubelet sets the limit of the pod for such containers (pkg/kubelet/kuberuntime, getMemoryLimit), and resizes them
  // with it.
  test('KEP-2837: containers without limits of their own follow the pod-level limit, and other containers keep theirs', async () => {
    const own = { ...sleeping('own', 64), resources: { ...memory(64), ...cpu(5000) } };
    const containers = [inheriting('a'), inheriting('b'), own];
    const running = await pod(128, containers, { podCpu: '10000 100000' });
    const ownLimits = { limits: { memory: '64Mi', cpu: '50m' } };
    await inKubernetes(running, {
      ...level('128Mi', '100m'),
      containers: [{ name: 'a' }, { name: 'b' }, { name: 'own', resources: ownLimits }],
    });
    const stays = [String(64 * MiB), '5000 100000'];
    await resizeLevel(running, '256Mi', '200m');
    const raised = [String(256 * MiB), '20000 100000'];
    expect(values(running, 'a', 'b', 'own')).toEqual([raised, raised, raised, stays]);
    await resizeLevel(running, '96Mi', '150m');
    const both = [String(96 * MiB), '15000 100000'];
    expect(values(running, 'a', 'b', 'own')).toEqual([both, both, both, stays]);
    await resizeLevel(running, '96Mi', '50m');
    const lowest = [String(96 * MiB), '5000 100000'];
    expect(values(running, 'a', 'b', 'own')).toEqual([lowest, lowest, lowest, stays]);
  });

  test("KEP-2837: containers without limits follow the pod-level limit by kubelet's state, unless an update has lowered them", async () => {
    const running = await pod(128, [sleeping('a', 128), sleeping('b', 128)]);
    kubelet.runs(running, { containers: { a: undefined, b: undefined }, level: 128 });
    await update(running, 'b', 50);
    await api.call('ResizePod', {
      pod: { sandbox_id: running.sandboxId },
      resources: { limits: { memory: '256Mi' }, requests: { memory: '256Mi' } },
    });
    const found = ['a', 'b'].map((name) => Number(running.read('memory.max', name)) / MiB);
    expect([limitOf(running), ...found]).toEqual([256, 256, 50]);
  });
});

describe('a volume with a size limit', () => {
  const withVolume = (size: number): Promise<RunningPod> =>
    pod(128, [{ ...sleeping('web', 128), mounts: { cache: '/cache' } }], {
      volumes: [{ name: 'cache', size: size * MiB }],
    });
  const spec = (sizeLimit?: string) => ({
    containers: [limited('web', 128)],
    volumes: [{ name: 'cache', emptyDir: { medium: 'Memory', ...(sizeLimit !== undefined && { sizeLimit }) } }],
  });
  const size = (running: RunningPod): number => running.volume('cache').size / MiB;
  afterEach(stop);

  test('A10: a volume with a size limit equal to the pod limit does not grow with the pod, and shrinks with it', async () => {
    await start();
    const running = await withVolume(128);
    await inKubernetes(running, spec('128Mi'));
    await update(running, 'web', 256);
    expect([limitOf(running), size(running)]).toEqual([256, 128]);
    await update(running, 'web', 64);
    expect([limitOf(running), size(running)]).toEqual([64, 64]);
    await update(running, 'web', 256);
    expect(size(running)).toBe(128);
  });

  test('A10: a volume with a size limit above the pod limit grows with the pod up to the size limit', async () => {
    await start();
    const running = await withVolume(128);
    await inKubernetes(running, spec('200Mi'));
    await update(running, 'web', 256);
    expect(size(running)).toBe(200);
  });

  test('A10: a volume without a size limit in the spec follows the pod limit', async () => {
    await start();
    const running = await withVolume(128);
    await inKubernetes(running, spec());
    await update(running, 'web', 256);
    expect(size(running)).toBe(256);
  });

  test('KEP-6030: a volume with an unknown size limit grows no larger than it was mounted, unless follow is requested', async () => {
    await start();
    const running = await withVolume(128);
    await update(running, 'web', 384);
    expect([limitOf(running), size(running)]).toEqual([384, 128]);
    await update(running, 'web', 64);
    expect(size(running)).toBe(64);
    await update(running, 'web', 384);
    expect(size(running)).toBe(128);
    // The operator sets the size again.
    await api.call('ResizePod', { pod: { uid: running.uid }, volumes: { cache: 'follow' } });
    expect(size(running)).toBe(384);
  });

  test('KEP-6030: a requested size or share above the size limit of a volume is rejected', async () => {
    await start();
    const running = await withVolume(64);
    await inKubernetes(running, spec('64Mi'));
    for (const cache of ['192Mi', '100%', '100%/web'])
      for (const dry_run of [true, false]) {
        const request = api.call('ResizePod', { pod: { uid: running.uid }, volumes: { cache }, dry_run });
        expect(await refusal(request)).toMatchObject({ code: 9, reason: 'VOLUME_EXCEEDS_SIZE_LIMIT' });
      }
    expect(size(running)).toBe(64);
    await api.call('ResizePod', { pod: { uid: running.uid }, volumes: { cache: '32Mi' } });
    expect(size(running)).toBe(32);
  });

  test('an annotation above the size limit of a volume is rejected with an event, and the volume stays', async () => {
    await start();
    const running = await withVolume(64);
    await inKubernetes(running, spec('64Mi'));
    const annotations = { 'volume.cri-resize-shim.io/cache': '192Mi' };
    server.set({
      uid: running.uid,
      name: 'web',
      namespace: 'default',
      nodeName: 'node-1',
      annotations,
      spec: spec('64Mi'),
    });
    expect((await server.event('VolumeResizeInfeasible')).note).toContain('VOLUME_EXCEEDS_SIZE_LIMIT');
    expect(size(running)).toBe(64);
  });

  test('A10: a volume with an unknown size limit does not grow with --volumes-follow=never', async () => {
    await start('--volumes-follow=never');
    const running = await withVolume(128);
    await update(running, 'web', 256);
    expect([limitOf(running), size(running)]).toEqual([256, 128]);
  });
});
