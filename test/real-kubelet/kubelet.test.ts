import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, statfsSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { manifestsOf } from '../deploy/manifests.ts';
import { CriClient } from '../support/cri/client.ts';
import { podCgroupFolder } from '../support/cri/pod-cgroup.ts';
import { ShimProcess } from '../support/cri/shim.ts';
import { Tenant } from '../support/e2e/tenant.ts';
import { Cluster, until } from './cluster.ts';

/**
 * Uses a released kubelet where other tests use a fake one. It admits resizes of the API server's `resize` subresource,
 * writes its state files, sizes volumes, refuses decreases, and calls in its own order.
 */

const STATE = '/var/lib/cri-resize-shim';
const PODS = '/api/v1/namespaces/default/pods';

interface Pod {
  readonly metadata: { readonly uid: string };
  readonly status: {
    readonly phase: string;
    readonly conditions?: readonly { readonly type: string; readonly message?: string }[];
    readonly containerStatuses?: readonly {
      readonly name: string;
      readonly containerID?: string;
      readonly restartCount: number;
      readonly state: { readonly running?: object };
      readonly resources?: { readonly limits?: { readonly cpu: string; readonly memory: string } };
    }[];
  };
}

let cluster: Cluster;
let shim: ShimProcess;
let cri: CriClient;
let uid: string;

const startShim = async (...flags: string[]): Promise<void> => {
  // Uses only the rights of deploy/rbac.yaml.
  const kubeconfig = await cluster.kubeconfigOf('kube-system', 'cri-resize-shim');
  shim = await ShimProcess.start({ args: ['--state-folder', STATE, '--kubeconfig', kubeconfig, ...flags] });
  cri = new CriClient(shim.address);
};

const stopShim = async (): Promise<void> => {
  cri.close();
  expect(await shim.stop()).toBe(0);
};

const pod = (): Promise<Pod> => cluster.api.get(`${PODS}/web`);
const statusOf = async (name: string) => (await pod()).status.containerStatuses?.find((one) => one.name === name);
const idOf = async (name: string): Promise<string> =>
  ((await statusOf(name))?.containerID ?? '').replace('containerd://', '');
const folder = (): string => podCgroupFolder(uid, 'burstable');
const read = (...path: string[]): string => readFileSync(join(folder(), ...path), 'utf8').trim();
const volume = (): string => `/var/lib/kubelet/pods/${uid}/volumes/kubernetes.io~empty-dir/cache`;
const sizeOf = (): number => {
  const { blocks, bsize } = statfsSync(volume());
  return blocks * bsize;
};
const kills = (): number => Number(/^oom_kill (\d+)$/m.exec(read('memory.events'))?.[1]);

/** Does the same as `kubectl patch pod web --subresource resize`. */
const resize = (name: string, memory: string, cpu: string): Promise<unknown> =>
  cluster.api.patch(`${PODS}/web/resize`, { spec: { containers: [{ name, resources: { limits: { memory, cpu } } }] } });

/** Waits until kubelet reports the new values. */
const done = (name: string, memory: string, cpu: string, seconds = 60): Promise<void> =>
  until(
    async () => {
      const limits = (await statusOf(name))?.resources?.limits;
      return limits?.memory === memory && limits.cpu === cpu;
    },
    `kubelet to report ${name} at ${memory} and ${cpu}`,
    seconds,
  );

const waitsFor = async (): Promise<string> =>
  (await pod()).status.conditions?.find(({ type }) => type === 'PodResizeInProgress')?.message ?? '';

/** Waits until the message of an earlier resize is gone, so that the next message belongs to the next resize. */
const waitsForNothing = (): Promise<void> =>
  until(async () => (await waitsFor()) === '', 'kubelet to wait for nothing');

/** The values of the kernel in MiB: the pod, its two containers, the volume. */
const sizes = async (): Promise<readonly number[]> => {
  const [a, b] = [await idOf('a'), await idOf('b')];
  const files = [read('memory.max'), read(a, 'memory.max'), read(b, 'memory.max'), sizeOf()];
  return files.map((value) => Number(value) / MiB);
};

const container = (name: string, memory: string): object => ({
  name,
  image: 'localhost/busybox:1',
  imagePullPolicy: 'Never',
  command: ['sleep', '1000000'],
  resources: { requests: { cpu: '50m', memory: '32Mi' }, limits: { cpu: '200m', memory } },
  volumeMounts: [{ name: 'cache', mountPath: '/cache' }],
});

beforeAll(async () => {
  cluster = await Cluster.start('/run/kubernetes');
  for (const manifest of manifestsOf(readFileSync('deploy/rbac.yaml', 'utf8'))) await cluster.apply(manifest);
  await startShim();
  await cluster.startKubelet(shim.address);
  await cluster.api.create(PODS, {
    metadata: { name: 'web' },
    spec: {
      nodeName: 'node1',
      hostNetwork: true,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: 1,
      tolerations: [{ operator: 'Exists' }],
      containers: [container('a', '256Mi'), container('b', '128Mi')],
      volumes: [{ name: 'cache', emptyDir: { medium: 'Memory' } }],
    },
  });
  await until(async () => (await pod()).status.phase === 'Running', 'the pod to run', 120);
  uid = (await pod()).metadata.uid;
  await done('a', '256Mi', '200m');
  await done('b', '128Mi', '200m');
}, 400_000);

afterAll(async () => {
  await cluster.stop();
  await stopShim();
});

test('the API server accepts every object of deploy/kustomize, and the installer has the rights it needs and no others', async () => {
  const text = execFileSync(process.env['KUBECTL'] ?? '', ['kustomize', 'deploy/kustomize'], { encoding: 'utf8' });
  const manifests = manifestsOf(text);
  expect(manifests.map(({ kind }) => kind)).toContain('DaemonSet');
  for (const manifest of manifests) await cluster.apply(manifest);
  const name = 'cri-resize-shim-installer';
  const rights: readonly (readonly [boolean, Readonly<Record<string, string>>])[] = [
    [true, { resource: 'nodes', verb: 'get', name: 'node1' }],
    [false, { resource: 'nodes', verb: 'patch', name: 'node1' }],
    [false, { resource: 'nodes', verb: 'update', name: 'node1' }],
    [false, { resource: 'nodes', verb: 'list' }],
    [false, { group: 'apps', resource: 'daemonsets', verb: 'patch', namespace: 'cri-resize-shim', name }],
    [false, { group: 'events.k8s.io', resource: 'events', verb: 'create', namespace: 'default' }],
    [false, { resource: 'secrets', verb: 'get', namespace: 'cri-resize-shim' }],
    [false, { resource: 'pods', verb: 'list' }],
  ];
  for (const [allowed, attributes] of rights)
    expect(await cluster.mayDo(`cri-resize-shim/${name}`, attributes), JSON.stringify(attributes)).toBe(allowed);
});

test('the volume of a pod that kubelet has created is as large as the pod limit', async () => {
  expect(await sizes()).toEqual([384, 256, 128, 384]);
});

test('limits of pod and container are raised and lowered by kubelet, and the volume follows', async () => {
  await resize('a', '320Mi', '300m');
  await done('a', '320Mi', '300m');
  await until(() => sizeOf() === 448 * MiB, 'the volume to grow');
  expect(await sizes()).toEqual([448, 320, 128, 448]);
  expect(read('cpu.max')).toBe('50000 100000');

  await resize('a', '128Mi', '100m');
  await done('a', '128Mi', '100m');
  expect(await sizes()).toEqual([256, 128, 128, 256]);
  expect(read('cpu.max')).toBe('30000 100000');
  expect(kills()).toBe(0);
});

test('a decrease that files in the volume block changes nothing, and is applied after they are removed', async () => {
  await resize('a', '192Mi', '100m');
  await done('a', '192Mi', '100m');
  await until(() => sizeOf() === 320 * MiB, 'the volume to grow');
  writeFileSync(join(volume(), 'file'), Buffer.alloc(250 * MiB, 'x'));
  await waitsForNothing();
  await resize('a', '96Mi', '100m');
  await until(async () => (await waitsFor()) !== '', 'kubelet to report what it waits for');
  expect(await sizes()).toEqual([320, 192, 128, 320]);
  expect(readFileSync(join(volume(), 'file')).equals(Buffer.alloc(250 * MiB, 'x'))).toBe(true);
  rmSync(join(volume(), 'file'));
  await done('a', '96Mi', '100m', 110);
  expect(await sizes()).toEqual([224, 96, 128, 224]);
  expect(kills()).toBe(0);
});

describe('a decrease that page cache blocks', () => {
  const big = join(process.env['NODE_OUT'] ?? '', 'big');
  const refusals = (): number =>
    readFileSync(join(process.env['NODE_OUT'] ?? '', 'kubelet.log'), 'utf8').split('cannot decrease memory limits')
      .length - 1;

  test('KEP-1287: hot page cache is held below a new limit until kubelet applies it, then memory.high is restored', async () => {
    await resize('a', '256Mi', '200m');
    await done('a', '256Mi', '200m');
    writeFileSync(big, '');
    truncateSync(big, 200 * MiB);
    const tenant = await Tenant.in(join(folder(), await idOf('a')));
    await tenant.run('reread', big);
    expect(Number(read(await idOf('a'), 'memory.current'))).toBeGreaterThan(200 * MiB);
    // Waits until kubelet's own measurement is as high, so that its first try fails.
    await delay(15_000);
    await waitsForNothing();
    const before = await statusOf('a');
    const refusedBefore = refusals();
    const begun = performance.now();
    await resize('a', '128Mi', '200m');
    await done('a', '128Mi', '200m');
    const ms = Math.round(performance.now() - begun);
    console.log(
      `hot page cache of 200 MiB: 256 to 128 Mi in place in ${ms} ms, lines of refusals: ${refusals() - refusedBefore}`,
    );
    const after = await statusOf('a');
    expect([after?.containerID, after?.restartCount]).toEqual([before?.containerID, before?.restartCount]);
    expect([await sizes(), kills()]).toEqual([[256, 128, 128, 256], 0]);
    const id = await idOf('a');
    await until(() => read('memory.high') === 'max' && read(id, 'memory.high') === 'max', 'memory.high as it was');
    expect(tenant.isAlive).toBe(true);
    await tenant.end();
    rmSync(big);
  });

  test('KEP-1287: a decrease that page cache blocks waits without foresight, and is applied with foresight and no kill', async () => {
    await resize('a', '256Mi', '200m');
    await done('a', '256Mi', '200m');
    await stopShim();
    await startShim('--foresight=false');
    writeFileSync(big, '');
    truncateSync(big, 150 * MiB);
    const tenant = await Tenant.in(join(folder(), await idOf('a')));
    await tenant.run('read', big);
    expect(Number(read(await idOf('a'), 'memory.current'))).toBeGreaterThan(150 * MiB);
    await waitsForNothing();
    await resize('a', '96Mi', '200m');
    await until(async () => (await waitsFor()).includes('below current usage'), 'kubelet to refuse');
    // Waits until kubelet has retried several times.
    const first = refusals();
    await until(() => refusals() > first + 1, 'kubelet to retry');
    expect((await sizes())[1]).toBe(256);

    await stopShim();
    await startShim();
    await done('a', '96Mi', '200m', 110);
    expect(await sizes()).toEqual([224, 96, 128, 224]);
    expect(kills()).toBe(0);
    expect(tenant.isAlive).toBe(true);
    await tenant.end();
    rmSync(big);
  });
});

test('a restarted container has the limits of its last resize', async () => {
  const before = await statusOf('b');
  await resize('b', '160Mi', '200m');
  await done('b', '160Mi', '200m');
  process.kill(await cri.pidOf(await idOf('b')), 'SIGKILL');
  await until(async () => {
    const now = await statusOf('b');
    return now?.restartCount === (before?.restartCount ?? 0) + 1 && now.state.running !== undefined;
  }, 'kubelet to restart the container');
  expect(await sizes()).toEqual([256, 96, 160, 256]);
});

test('an annotation resizes the volume, and an event reports it', async () => {
  await cluster.api.patch(`${PODS}/web`, {
    metadata: { annotations: { 'volume.cri-resize-shim.io/cache': '48Mi' } },
  });
  await until(() => sizeOf() === 48 * MiB, 'the new size of the volume');
  await until(async () => {
    const { items } = await cluster.api.get<{
      items: { reason: string; message: string; involvedObject: { name: string } }[];
    }>('/api/v1/namespaces/default/events');
    return items.some(
      ({ reason, message, involvedObject: { name } }) =>
        reason === 'VolumeResized' && name === 'web' && message.endsWith('as requested (48Mi)'),
    );
  }, 'an event');
});

test('the node stays ready while the shim restarts', async () => {
  await stopShim();
  await startShim();
  await resize('a', '128Mi', '200m');
  await done('a', '128Mi', '200m');
  expect(await cluster.isNodeReady()).toBe(true);
  expect((await sizes()).slice(0, 3)).toEqual([288, 128, 160]);
});

test('the cgroup and the records of a deleted pod are removed', async () => {
  await cluster.api.delete(`${PODS}/web`);
  await until(() => !existsSync(folder()), 'the cgroup to be removed', 110);
  await until(() => !readdirSync(STATE).some((name) => name.includes(uid)), 'the records to be removed', 110);
});
