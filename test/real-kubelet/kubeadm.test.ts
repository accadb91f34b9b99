import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { isSystemdNode } from '../support/cri/pod-cgroup.ts';
import { CONFIG, CONTAINERD, OURS, removePackage, SETTINGS, UNIT } from '../support/e2e/kubelet-unit.ts';
import { Cluster, NODE, until } from './cluster.ts';
import { runsPod } from './readiness.ts';

/**
 * A real kubeadm upgrades a node with the shim: `kubeadm upgrade node phase kubelet-config` writes the configuration of
 * kubelet from the cluster's ConfigMap. Then an operator restarts kubelet.
 */

const KUBEADM = process.env['KUBEADM'] ?? '';
const PATCH = join(dirname(CONFIG), 'instance-config.yaml');
const FLAGS = join(dirname(CONFIG), 'kubeadm-flags.env');
const PKI = '/etc/kubernetes/pki';
const MAPS = '/api/v1/namespaces/kube-system/configmaps';
/** The value that only the ConfigMap contains. */
const UPGRADED = 77;

let cluster: Cluster;

/** The configuration of kubelet without an endpoint, as kubeadm stores it in the cluster. */
function clusterWide(): Record<string, unknown> {
  const config = parse(readFileSync(CONFIG, 'utf8')) as Record<string, unknown>;
  delete config['containerRuntimeEndpoint'];
  return config;
}

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
});

afterEach(async () => {
  // Cleans up after a failed test.
  await execa('node', ['dist/resizectl.js', 'uninstall'], { reject: false });
  await execa('systemctl', ['stop', 'kubelet.service'], { reject: false });
  await removePackage();
  await cluster.stop();
  for (const path of [UNIT, `${UNIT}.d`, dirname(SETTINGS), PATCH, FLAGS, PKI])
    rmSync(path, { recursive: true, force: true });
}, 120_000);

/** The certificate that kubeadm's default for kubelet names. */
async function makeAuthority(): Promise<void> {
  mkdirSync(PKI, { recursive: true });
  const files = ['-keyout', join(PKI, 'ca.key'), '-out', join(PKI, 'ca.crt')];
  await execa('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=tests', ...files]);
}

/**
 * kubeadm's drop-in for the unit. kubeadm always turns on the rotation of kubelet's certificate, but this kubelet has a
 * token instead: a flag turns it off.
 */
async function addDropIn(): Promise<void> {
  const command = /^ExecStart=(.*)$/m.exec(readFileSync(UNIT, 'utf8'))?.[1] ?? '';
  const start = `${command} --rotate-certificates=false $KUBELET_KUBEADM_ARGS`;
  mkdirSync(`${UNIT}.d`, { recursive: true });
  writeFileSync(
    join(`${UNIT}.d`, '10-kubeadm.conf'),
    ['[Service]', `EnvironmentFile=-${FLAGS}`, 'ExecStart=', `ExecStart=${start}`, ''].join('\n'),
  );
  await execa('systemctl', ['daemon-reload']);
  await execa('systemctl', ['restart', 'kubelet.service']);
}

async function startCluster(): Promise<void> {
  await makeAuthority();
  cluster = await Cluster.start(mkdtempSync('/run/kubernetes-'));
  await cluster.startKubeletUnit(CONTAINERD);
  await addDropIn();
  const { stdout: version } = await execa(KUBEADM, ['version', '-o', 'short']);
  const configuration = {
    apiVersion: 'kubeadm.k8s.io/v1beta4',
    kind: 'ClusterConfiguration',
    kubernetesVersion: version,
  };
  const data = {
    'kubeadm-config': { ClusterConfiguration: stringify(configuration) },
    'kubelet-config': { kubelet: stringify({ ...clusterWide(), maxPods: UPGRADED }) },
  };
  for (const [name, content] of Object.entries(data))
    await cluster.api.create(MAPS, { metadata: { name }, data: content });
}

async function resizectl(...args: readonly string[]): Promise<string> {
  const { all, exitCode } = await execa('node', ['dist/resizectl.js', ...args], { reject: false, all: true });
  expect(exitCode, all).toBe(0);
  return all;
}

async function upgradeNode(): Promise<void> {
  const flags = ['--kubeconfig', cluster.kubeconfig];
  const { all, exitCode } = await execa(KUBEADM, ['upgrade', 'node', 'phase', 'kubelet-config', ...flags], {
    reject: false,
    all: true,
  });
  expect(exitCode, all).toBe(0);
  expect(parse(readFileSync(CONFIG, 'utf8'))).toMatchObject({ maxPods: UPGRADED });
  await execa('systemctl', ['restart', 'kubelet.service']);
  await until(
    async () => {
      const node = await cluster.api.get<{ status: { capacity: { pods: string } } }>(`/api/v1/nodes/${NODE}`);
      return node.status.capacity.pods === String(UPGRADED) && (await cluster.isNodeReady());
    },
    'the node to be ready with the new configuration',
    120,
  );
}

const endpointIn = (file: string): unknown =>
  (parse(readFileSync(file, 'utf8')) as Record<string, unknown>)['containerRuntimeEndpoint'];

test('the shim survives an upgrade of the node by kubeadm, and a removal survives the next one', async () => {
  mkdirSync(dirname(PATCH), { recursive: true });
  writeFileSync(PATCH, `containerRuntimeEndpoint: "${CONTAINERD}"\n`);
  await startCluster();
  await resizectl('install');
  await upgradeNode();
  expect([CONFIG, PATCH].map(endpointIn)).toEqual([OURS, OURS]);
  expect(await resizectl('doctor')).toMatch(/^kubelet +ok +uses the shim/m);
  await runsPod(cluster, 'upgraded');
  await resizectl('uninstall');
  await upgradeNode();
  expect([CONFIG, PATCH].map(endpointIn)).toEqual([CONTAINERD, CONTAINERD]);
  await runsPod(cluster, 'removed');
}, 600_000);

/** Whether kubeadm moves the endpoint from its flags to the configuration: 1.37 expects that 1.36 has done it. */
async function movesEndpoint(): Promise<boolean> {
  const { stdout } = await execa(KUBEADM, ['version', '--output', 'short']);
  return Number(stdout.split('.')[1]) < 37;
}

test('the shim survives an upgrade of a node with the endpoint in kubeadm-flags.env, which kubeadm up to 1.36 moves to the configuration, and is removed from there', async () => {
  await startCluster();
  // kubeadm before 1.34: a flag, and nothing in the configuration.
  writeFileSync(CONFIG, stringify(clusterWide()));
  writeFileSync(FLAGS, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=${CONTAINERD}"\n`);
  await execa('systemctl', ['restart', 'kubelet.service']);
  await resizectl('install');
  expect(readFileSync(FLAGS, 'utf8')).toContain(OURS);
  await upgradeNode();
  const moves = await movesEndpoint();
  const endpoints = (): readonly unknown[] =>
    moves ? [CONFIG, PATCH].map(endpointIn) : [/endpoint=([^" ]*)/.exec(readFileSync(FLAGS, 'utf8'))?.[1]];
  if (moves) expect(readFileSync(FLAGS, 'utf8')).not.toContain('container-runtime-endpoint');
  expect(new Set(endpoints())).toEqual(new Set([OURS]));
  expect(await resizectl('doctor')).toMatch(/^kubelet +ok +uses the shim/m);
  await runsPod(cluster, 'upgraded');
  await resizectl('uninstall');
  await upgradeNode();
  expect(new Set(endpoints())).toEqual(new Set([CONTAINERD]));
  await runsPod(cluster, 'removed');
}, 600_000);
