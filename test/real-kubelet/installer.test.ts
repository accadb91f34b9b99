import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/index.ts';
import { isSystemdNode, podCgroupFolder } from '../support/cri/pod-cgroup.ts';
import { type Manifest, manifestsOf } from '../deploy/manifests.ts';
import { importImage } from '../support/e2e/installer-image.ts';
import { STAGING, image } from '../support/e2e/installer-pod.ts';
import {
  CONFIG,
  CONTAINERD,
  OURS,
  SETTINGS,
  UNIT,
  property,
  removePackage,
  states,
} from '../support/e2e/kubelet-unit.ts';
import { Cluster, NODE, POD_ON_NODE, until } from './cluster.ts';

/**
 * The DaemonSet's pod with a real kubelet that is a systemd unit and uses the systemd cgroup driver. The pod installs
 * the shim below that kubelet, a pod is resized through the shim, and the shim is uninstalled. Pods are created as the
 * DaemonSet controller creates them.
 */

const NAMESPACE = 'cri-resize-shim';
const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
const WEB = '/api/v1/namespaces/default/pods/web';
const LABEL = 'cri-resize-shim.io/install';
const off = ['inactive', 'inactive', 'inactive'];
const on = ['active', 'active', 'active'];

interface Pod {
  readonly metadata: { readonly uid: string };
  readonly status: {
    readonly phase: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly containerID?: string; readonly restartCount: number }[];
  };
}

let cluster: Cluster;
let installer: Manifest;
let uid: string;

const web = (): Promise<Pod> => cluster.api.get(WEB);
/** The same value means that the container has not restarted. */
const container = async (): Promise<object> => {
  const [status] = (await web()).status.containerStatuses ?? [];
  return { id: status?.containerID, restarts: status?.restartCount };
};
const labelled = (value: string | null): Promise<unknown> =>
  cluster.api.patch(`/api/v1/nodes/${NODE}`, { metadata: { labels: { [LABEL]: value } } });
const isReady = async (path: string): Promise<boolean> => {
  const { status } = await cluster.api.get<Pod>(path);
  return status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') ?? false;
};
/** The events of the node, in any order: the API server lists them by random names. */
const events = async (): Promise<readonly string[]> => {
  const path = '/apis/events.k8s.io/v1/namespaces/default/events';
  const { items } = await cluster.api.get<{
    items: readonly { reportingController?: string; reason: string }[];
  }>(path);
  return items
    .filter(({ reportingController }) => reportingController === 'cri-resize-shim-installer')
    .map(({ reason }) => reason)
    .toSorted();
};
const turn = async (): Promise<string | undefined> => {
  const path = `/apis/coordination.k8s.io/v1/namespaces/${NAMESPACE}/leases/cri-resize-shim-installer`;
  return (await cluster.api.get<{ spec: { holderIdentity?: string } }>(path)).spec.holderIdentity;
};

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  await importImage(image);
  cluster = await Cluster.start('/run/kubernetes', { hasAccounts: true });
  const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace: 'default' } };
  await cluster.apply(account);
  const text = execFileSync(process.env['KUBECTL'] ?? '', ['kustomize', 'deploy/kustomize'], { encoding: 'utf8' });
  for (const manifest of manifestsOf(text)) {
    await cluster.apply(manifest);
    if (manifest.kind === 'DaemonSet') installer = manifest;
  }
  // The controller manager creates this in every namespace.
  await cluster.apply({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'kube-root-ca.crt', namespace: NAMESPACE },
    data: { 'ca.crt': cluster.certificate() },
  });
  await cluster.startKubeletUnit(CONTAINERD);
  await cluster.api.create(dirname(WEB), {
    metadata: { name: 'web' },
    spec: {
      ...POD_ON_NODE,
      containers: [
        {
          name: 'app',
          image: 'localhost/busybox:1',
          imagePullPolicy: 'Never',
          command: ['sleep', '1000000'],
          resources: { requests: { cpu: '50m', memory: '32Mi' }, limits: { cpu: '200m', memory: '128Mi' } },
          volumeMounts: [{ name: 'cache', mountPath: '/cache' }],
        },
      ],
      volumes: [{ name: 'cache', emptyDir: { medium: 'Memory' } }],
    },
  });
  await until(() => isReady(WEB), 'the pod to run', 120);
  ({ uid } = (await web()).metadata);
}, 600_000);

afterAll(async () => {
  await cluster.stop();
  for (const path of [UNIT, dirname(SETTINGS)]) rmSync(path, { recursive: true, force: true });
});

test('adding the label installs the shim below kubelet, and a pod that already runs is resized with its volume through it', async () => {
  const before = await container();
  await labelled('true');
  const { template } = installer['spec'] as { template: { metadata: object; spec: object } };
  await cluster.api.create(PODS, {
    metadata: { ...template.metadata, name: 'installer' },
    spec: { ...template.spec, nodeName: NODE },
  });
  await until(async () => (await events()).includes('ShimInstalled'), 'the shim to be installed', 180);
  // Waits for this second, because a restarted kubelet reports the pod as ready until the first probe.
  await until(() => isReady(`${PODS}/installer`), 'the installer to be ready');
  expect([await states(), await turn(), await events()]).toEqual([on, undefined, ['ShimInstalled']]);
  expect(readFileSync(CONFIG, 'utf8')).toContain(`containerRuntimeEndpoint: ${OURS}\n`);
  expect(await cluster.isNodeReady()).toBe(true);
  expect(await container()).toEqual(before);

  const limits = { cpu: '300m', memory: '192Mi' };
  await cluster.api.patch(`${WEB}/resize`, { spec: { containers: [{ name: 'app', resources: { limits } }] } });
  const folder = podCgroupFolder(uid, 'burstable');
  const read = (file: string): string => readFileSync(join(folder, file), 'utf8').trim();
  await until(() => read('memory.max') === String(192 * MiB), 'the new memory limit of the pod');
  // kubelet resizes CPU after memory.
  await until(() => read('cpu.max') === '30000 100000', 'the new CPU limit of the pod');
  await until(() => {
    const { blocks, bsize } = statfsSync(`/var/lib/kubelet/pods/${uid}/volumes/kubernetes.io~empty-dir/cache`);
    return blocks * bsize === 192 * MiB;
  }, 'the volume to grow with the pod');
}, 300_000);

test('removing the label uninstalls the shim and leaves nothing, though the restarted kubelet ends the pod', async () => {
  const before = await container();
  await labelled(null);
  await cluster.api.delete(`${PODS}/installer`);
  const isGone = (): Promise<boolean> =>
    cluster.api.get(`${PODS}/installer`).then(
      () => false,
      (error: unknown) => String(error).includes('404'),
    );
  await until(isGone, 'the installer to end', 180);
  // It goes on after the pod, which kubelet ends within seconds because it no longer fits the node.
  await until(
    async () => (await property('cri-resize-shim-installer.service', 'ActiveState')) === 'inactive',
    'the work to end',
    120,
  );
  expect(await states()).toEqual(off);
  expect(readFileSync(CONFIG, 'utf8')).toContain(`containerRuntimeEndpoint: ${CONTAINERD}\n`);
  expect([existsSync('/usr/local/lib/cri-resize-shim'), readdirSync(STAGING)]).toEqual([false, []]);
  expect(await events()).toEqual(expect.arrayContaining(['ShimInstalled', 'ShimUninstalling']));
  const { metadata } = await cluster.api.get<{ metadata: { labels: Record<string, string> } }>(`/api/v1/nodes/${NODE}`);
  // `restore` removes it: nobody is left on the node that could (docs/kubernetes.md).
  expect(['removing', undefined]).toContain(metadata.labels['cri-resize-shim.io/version']);
  await until(() => cluster.isNodeReady(), 'the node to be ready');
  expect(await container()).toEqual(before);
}, 300_000);
