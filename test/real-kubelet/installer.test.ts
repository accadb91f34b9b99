import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { type Manifest, manifestsOf } from '../deploy/manifests.ts';
import { isSystemdNode, podCgroupFolder } from '../support/cri/pod-cgroup.ts';
import { image, importImage, STAGING } from '../support/e2e/installer-pod.ts';
import {
  CONFIG,
  CONTAINERD,
  OURS,
  property,
  removePackage,
  SETTINGS,
  states,
  UNIT,
} from '../support/e2e/kubelet-unit.ts';
import { Cluster, NODE, POD_ON_NODE, until } from './cluster.ts';
import { runsPod } from './readiness.ts';
import { ReadyWatch } from './ready/ready-watch.ts';

/**
 * The DaemonSet's pod with a real kubelet that is a systemd unit and uses the systemd cgroup driver. The pod installs
 * the shim below that kubelet, a pod is resized through the shim, and the shim is uninstalled. Pods are created as the
 * DaemonSet controller creates them.
 */

const NAMESPACE = 'cri-resize-shim';
const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
const WEB = '/api/v1/namespaces/default/pods/web';
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
const isReady = async (path: string): Promise<boolean> => {
  const { status } = await cluster.api.get<Pod>(path);
  return status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') ?? false;
};
/** The reports of kubelet that a pod of the installer is not ready, in the order of the events. */
const unhealthy = async (): Promise<string> => {
  const { items } = await cluster.api.get<{ items: readonly { reason: string; message?: string }[] }>(
    `/api/v1/namespaces/${NAMESPACE}/events`,
  );
  return items.flatMap(({ reason, message = '' }) => (reason === 'Unhealthy' ? [message] : [])).join('\n');
};

interface Template {
  readonly metadata: object;
  readonly spec: {
    readonly containers: readonly [
      { readonly args: readonly string[]; readonly env: readonly { readonly name: string; readonly value?: string }[] },
    ];
    readonly volumes: readonly { readonly name: string }[];
  };
}
/** Creates the pod of the DaemonSet. */
async function createInstaller(change: (spec: Template['spec']) => object = () => ({})): Promise<void> {
  const { metadata, spec } = (installer['spec'] as { readonly template: Template }).template;
  await cluster.api.create(PODS, {
    metadata: { ...metadata, name: 'installer' },
    spec: { ...spec, ...change(spec), nodeName: NODE },
  });
}
/** Creates the hook of `helm uninstall`: its rights as Helm does, and its Job's pod as the controller does. */
async function createRestore(): Promise<void> {
  const args = ['template', 'shim', 'deploy/helm/cri-resize-shim', '--namespace', NAMESPACE];
  const flags = ['--kube-version', '1.36.0', '--show-only', 'templates/restore.yaml'];
  const text = execFileSync(process.env['HELM'] ?? '', [...args, ...flags]).toString();
  for (const manifest of manifestsOf(text)) {
    if (manifest.kind !== 'Job') await cluster.apply(manifest);
    else {
      const { metadata, spec } = (manifest['spec'] as { readonly template: Template }).template;
      await cluster.api.create(PODS, {
        metadata: { ...metadata, name: 'restore' },
        spec: { ...spec, nodeName: NODE },
      });
    }
  }
}
/** Changes the environment of the container, as another mode of the DaemonSet does. */
const uninstalling = ({ containers: [one] }: Template['spec']): object => ({
  containers: [
    {
      ...one,
      env: one.env.map((variable) =>
        variable.name === 'INSTALLER_MODE' ? { ...variable, value: 'uninstall' } : variable,
      ),
    },
  ],
});
/** Whether the pod is ready, also in its own log: a restarted kubelet reports it as ready until the first probe. */
const installerReady = async (): Promise<boolean> => {
  const lines = (await cluster.api.get<string>(`${PODS}/installer/log`).catch(() => '')).trim().split('\n');
  return lines.at(-1) === 'ready' && (await isReady(`${PODS}/installer`));
};
const installerGone = (): Promise<void> =>
  until(
    () =>
      cluster.api.get(`${PODS}/installer`).then(
        () => false,
        (error: unknown) => String(error).includes('404'),
      ),
    'the installer to end',
    180,
  );
/** Replaces the pod as the controller does when its template has changed, and waits for its work on the node. */
async function replaceInstaller(change?: (spec: Template['spec']) => object): Promise<void> {
  await cluster.api.delete(`${PODS}/installer`);
  await installerGone();
  await createInstaller(change);
  await until(installerReady, 'the next installer to be ready', 180);
}
const doctor = async (): Promise<string> =>
  (await execa('/usr/local/bin/resizectl', ['doctor'], { reject: false })).stdout;

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  await importImage(image);
  // The API server dials a node by its name by default, which needs a DNS server.
  const serverFlags = ['--kubelet-preferred-address-types=InternalIP'];
  cluster = await Cluster.start('/run/kubernetes', { hasAccounts: true, serverFlags });
  const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace: 'default' } };
  await cluster.apply(account);
  const text = execFileSync(process.env['KUBECTL'] ?? '', ['kustomize', 'deploy/kustomize'], { encoding: 'utf8' });
  for (const manifest of manifestsOf(text)) {
    await cluster.apply(manifest);
    if (manifest.metadata.name === 'cri-resize-shim-installer' && manifest.kind === 'DaemonSet') installer = manifest;
  }
  // The controller manager creates this in every namespace.
  await cluster.apply({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'kube-root-ca.crt', namespace: NAMESPACE },
    data: { 'ca.crt': cluster.certificate() },
  });
  await cluster.startKubeletUnit(CONTAINERD);
  // The kubelet admits only pods that fit its node.
  await cluster.api.patch(`/api/v1/nodes/${NODE}`, { metadata: { labels: { 'cri-resize-shim.io/install': 'true' } } });
  await cluster.api.create(dirname(WEB), {
    metadata: { name: 'web', annotations: { 'volume.cri-resize-shim.io/cache': 'follow' } },
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

test('install: a pod of the DaemonSet installs the shim below kubelet, and a running pod is resized with its volume through the shim', async () => {
  const before = await container();
  await createInstaller();
  await until(installerReady, 'the installer to be ready', 180);
  expect(await states()).toEqual(on);
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

describe('kubectl resizectl from outside the node', () => {
  const account = 'cri-resize-shim/cri-resize-shim-viewer';
  const [serviceAccount, ...rights] = manifestsOf(readFileSync('deploy/viewer.yaml', 'utf8'));
  let folder: string;
  let kubeconfig: string;

  beforeAll(async () => {
    await cluster.apply(serviceAccount!);
    kubeconfig = await cluster.kubeconfigOf('cri-resize-shim', 'cri-resize-shim-viewer');
    folder = mkdtempSync(join(tmpdir(), 'plugin-'));
    symlinkSync(process.env['KUBECTL'] ?? '', join(folder, 'kubectl'));
    symlinkSync(resolve('dist/resizectl.js'), join(folder, 'kubectl-resizectl'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const plugin = async (
    ...args: readonly string[]
  ): Promise<{ code: number | undefined; out: string; err: string }> => {
    const PATH = [folder, dirname(process.execPath), process.env['PATH']].join(':');
    const all = ['resizectl', ...args, '--kubeconfig', kubeconfig];
    const { exitCode, stdout, stderr } = await execa('kubectl', all, { reject: false, env: { PATH } });
    return { code: exitCode, out: stdout, err: stderr };
  };
  const commands: readonly (readonly string[])[] = [
    ['status', 'web', '-n', 'default'],
    ['status', '--node', NODE],
    ['plan', 'web', '-n', 'default', 'app.memory=256Mi'],
    ['fleet'],
  ];

  test.each(commands.map((args) => ({ args, line: args.join(' ') })))(
    'kubectl resizectl $line is refused without rights',
    async ({ args }) => {
      const { code, out, err } = await plugin(...args);
      expect(err).toMatch(
        /kubectl-resizectl: kubectl get pods? .*forbidden: User "system:serviceaccount:cri-resize-shim:cri-resize-shim-viewer"/,
      );
      expect([code, out]).toEqual([1, '']);
    },
  );

  test('kubectl resizectl needs pods/exec to read from a node', async () => {
    for (const manifest of rights)
      await cluster.apply({
        ...manifest,
        ...(manifest.kind === 'Role' && { rules: [{ apiGroups: [''], resources: ['pods'], verbs: ['get', 'list'] }] }),
      });
    const { code, err } = await plugin('status', 'web', '-n', 'default');
    expect([code, err]).toEqual([1, expect.stringContaining('cannot create resource "pods/exec"')]);
    const fleet = await plugin('fleet');
    expect([fleet.code, fleet.out]).toEqual([1, expect.stringMatching(/^node1 +unknown: .*forbidden/m)]);
    const path = '/apis/rbac.authorization.k8s.io/v1/namespaces/cri-resize-shim/roles/cri-resize-shim-viewer';
    await cluster.api.merge(path, { rules: rights.find(({ kind }) => kind === 'Role')!['rules'] });
  });

  test('kubectl resizectl reads pod, node and fleet, and plans, with the rights of deploy/viewer.yaml', async () => {
    const [status, node, plan, fleet] = [
      await plugin(...commands[0]!),
      await plugin(...commands[1]!),
      await plugin(...commands[2]!),
      await plugin(...commands[3]!),
    ];
    for (const { code, err } of [status, node, plan, fleet]) expect(code, err).toBe(0);
    expect(status.out).toMatch(/192 ?Mi/);
    expect(status.out).toMatch(/kubelet \(\d+\)/);
  });

  test('the account of kubectl resizectl may not change a pod, and may not read other resources', async () => {
    const asked = (verb: string, resource: string, namespace = 'default'): Promise<boolean> =>
      cluster.mayDo(account, { verb, resource, namespace });
    expect(await asked('get', 'pods')).toBe(true);
    for (const [verb, resource] of [
      ...[
        ['patch', 'pods'],
        ['delete', 'pods'],
        ['list', 'pods'],
        ['get', 'secrets'],
        ['list', 'nodes'],
      ],
    ] as const)
      expect(await asked(verb, resource), `${verb} ${resource}`).toBe(false);
  });
});

test('a ConfigMap with intercept: false switches the shim off, and intercept: true on again, while kubelet stays connected', async () => {
  const [before, kubelet] = [await container(), await property('kubelet.service', 'MainPID')];
  await cluster.apply({
    ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'off', namespace: NAMESPACE } },
    data: { 'config.yaml': 'intercept: false\n' },
  });
  const withConfig = (name: string) => (spec: Template['spec']) => ({
    volumes: spec.volumes.map((volume) => (volume.name === 'config' ? { ...volume, configMap: { name } } : volume)),
  });
  await replaceInstaller(withConfig('off'));
  expect(await doctor()).toMatch(/^shim +ok +serves .*, off by configuration/m);
  await cluster.apply({
    ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'on', namespace: NAMESPACE } },
    data: { 'config.yaml': 'intercept: true\n' },
  });
  await replaceInstaller(withConfig('on'));
  expect(await doctor()).toMatch(/^shim +ok +serves .*, ready/m);
  expect([await container(), await property('kubelet.service', 'MainPID')]).toEqual([before, kubelet]);
  expect(await cluster.isNodeReady()).toBe(true);
}, 300_000);

test('--repair-drift makes a kubelet that bypasses the shim use it again, and kubelet reports why the pod is not ready', async () => {
  const before = await container();
  await replaceInstaller(({ containers: [one] }) => ({
    containers: [{ ...one, args: [...one.args, '--repair-drift'] }],
  }));
  writeFileSync(CONFIG, readFileSync(CONFIG, 'utf8').replace(OURS, CONTAINERD));
  await execa('systemctl', ['restart', 'kubelet.service']);
  await until(async () => (await unhealthy()).includes(`kubelet is configured to use ${CONTAINERD}`), 'the event', 60);
  await until(installerReady, 'the installer to be ready', 180);
  expect(readFileSync(CONFIG, 'utf8')).toContain(`containerRuntimeEndpoint: ${OURS}\n`);
  expect(await doctor()).toMatch(/^kubelet +ok +uses the shim/m);
  await until(() => cluster.isNodeReady(), 'the node to be ready');
  expect(await container()).toEqual(before);
}, 300_000);

test('install: a pod with the mode uninstall removes the shim completely, and is ready afterwards', async () => {
  const before = await container();
  await replaceInstaller(uninstalling);
  expect(await states()).toEqual(off);
  expect(readFileSync(CONFIG, 'utf8')).toContain(`containerRuntimeEndpoint: ${CONTAINERD}\n`);
  expect([existsSync('/usr/local/lib/cri-resize-shim'), readdirSync(STAGING)]).toEqual([false, []]);
  await until(() => cluster.isNodeReady(), 'the node to be ready');
  expect(await container()).toEqual(before);
}, 300_000);

test('install: the Job of helm uninstall removes the shim below the kubelet that runs the Job, and the node stays Ready', async () => {
  await replaceInstaller();
  expect(await states()).toEqual(on);
  const [before, ready] = [await container(), new ReadyWatch(cluster)];
  await createRestore();
  const set = `/apis/apps/v1/namespaces/${NAMESPACE}/daemonsets/cri-resize-shim-installer`;
  interface Set {
    readonly metadata: { readonly generation: number };
    readonly spec: { readonly template: Template };
  }
  const mode = async (): Promise<string | undefined> => {
    const { spec } = await cluster.api.get<Set>(set);
    return spec.template.spec.containers[0].env.find(({ name }) => name === 'INSTALLER_MODE')?.value;
  };
  await until(async () => (await mode()) === 'uninstall', 'the Job to change the DaemonSet', 120);
  // The controller of the DaemonSet.
  const generation = async (): Promise<number> => (await cluster.api.get<Set>(set)).metadata.generation;
  const report = async (ready: number): Promise<unknown> => {
    const numbers = { currentNumberScheduled: 1, desiredNumberScheduled: 1, numberMisscheduled: 0 };
    const done = { numberReady: ready, numberAvailable: ready, updatedNumberScheduled: 1 };
    return cluster.api.merge(`${set}/status`, {
      status: { ...numbers, ...done, observedGeneration: await generation() },
    });
  };
  await report(0);
  await replaceInstaller(uninstalling);
  await report(1);
  const phase = async (): Promise<string> => (await cluster.api.get<Pod>(`${PODS}/restore`)).status.phase;
  const log = (): Promise<string> => cluster.api.get<string>(`${PODS}/restore/log`);
  await until(async () => ['Succeeded', 'Failed'].includes(await phase()), 'the Job to end', 300).catch(
    async (error: unknown) => expect.fail(`${String(error)}: ${await log()}`),
  );
  expect([await phase(), (await log()).trim().split('\n').at(-1)]).toEqual([
    'Succeeded',
    'the shim is removed from all nodes',
  ]);
  expect(await states()).toEqual(off);
  // kubelet now uses containerd directly, and runs a new pod with it.
  expect(readFileSync(CONFIG, 'utf8')).toContain(`containerRuntimeEndpoint: ${CONTAINERD}\n`);
  expect(existsSync(OURS.replace('unix://', ''))).toBe(false);
  await runsPod(cluster, 'after');
  await ready.stop();
  expect([ready.breaks, ready.seen > 0]).toEqual([[], true]);
  expect(await container()).toEqual(before);
}, 600_000);
