import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { CriClient } from '../../support/cri/client.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import {
  CONFIG,
  calledThrough,
  FLAGS,
  kubeletCommand,
  OURS,
  property,
  startKubelet,
  states,
  stopKubelet,
} from '../../support/e2e/kubelet-unit.ts';
import { startSystemdNode } from '../../support/e2e/systemd-node.ts';

/**
 * Nodes that are laid out as a platform lays them out, with a fake kubelet. The commands are those of the platform's
 * page in docs/install, in their order.
 */

// On a node where systemd is the first process: npm run node -- --init systemd

const on = ['active', 'active', 'active'];
const off = ['inactive', 'inactive', 'inactive'];
const UNITS = '/etc/systemd/system';

let direct: CriClient;
let pod: RunningPod;
/** Removes the layout of the test. */
let undo: (() => Promise<unknown>)[];

beforeAll(async () => {
  ({ direct, pod } = await startSystemdNode(['a']));
});
afterAll(async () => {
  await pod.remove();
  direct.close();
});
beforeEach(() => (undo = []));
afterEach(async () => {
  await execa('node', ['dist/resizectl.js', 'uninstall'], { reject: false });
  for (const step of undo.toReversed()) await step();
  await stopKubelet();
});

/** Runs the next command of a page, which has to be this one. Returns its output. */
function commandsOf(page: string): (command: string) => Promise<string> {
  const text = readFileSync(`docs/install/${page}.md`, 'utf8');
  const commands = [...text.matchAll(/^ {4}(resizectl .*)$/gm)].map(([, line]) => line);
  return async (command) => {
    expect(commands.shift()).toBe(command);
    const words = ['dist/resizectl.js', ...command.split(' ').slice(1)];
    const { all, exitCode } = await execa('node', words, { reject: false, all: true });
    expect(exitCode, all).toBe(0);
    return all;
  };
}

/** Creates a unit, starts it, and waits until its kubelet calls the runtime. */
async function startUnit(unit: string, service: readonly string[], runtime: string): Promise<void> {
  writeFileSync(
    join(UNITS, unit),
    `[Unit]\nStartLimitIntervalSec=0\n[Service]\n${service.join('\n')}\nRestart=always\n`,
  );
  undo.push(async () => {
    await execa('systemctl', ['stop', unit]);
    rmSync(join(UNITS, unit));
    await execa('systemctl', ['daemon-reload']);
  });
  await execa('systemctl', ['daemon-reload']);
  await execa('systemctl', ['start', unit]);
  await calledThrough(runtime);
}

function put(path: string, text: string, mode = 0o644): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text, { mode });
  undo.push(() => rm(path, { force: true }));
}

/** Returns a command that serves the node's containerd at another socket. */
function containerdAt(socket: string): string {
  const program = join('/opt/fake-kubelet', 'containerd.mjs');
  put(
    program,
    `import { mkdirSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
mkdirSync('${dirname(socket)}', { recursive: true });
rmSync('${socket}', { force: true });
createServer((one) => {
  const other = connect('/run/containerd/containerd.sock');
  one.pipe(other).pipe(one);
  for (const end of [one, other]) end.on('error', () => (one.destroy(), other.destroy()));
}).listen('${socket}');\n`,
  );
  return `${process.execPath} ${program}`;
}

/** The drop-in that k3s and RKE2 write at each start. */
const defaults = (socket: string): string =>
  `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://${socket}\n`;

interface Boot {
  /** Does the work of the platform at a boot, before kubelet starts. */
  readonly boot?: () => void;
  /** Whether the page then has the installation once more. */
  readonly isLost?: true;
}

/** Runs the commands of a page, and restarts the unit of kubelet in between, as after a boot. */
async function follow(page: string, unit: string, runtime: string, { boot, isLost }: Boot = {}): Promise<void> {
  const next = commandsOf(page);
  const processes = pod.read('cgroup.procs', 'a');
  await next('resizectl install');
  expect([await states(), await property('cri-resize-shim.service', 'ActiveState')]).toEqual([on, 'active']);
  await calledThrough(OURS);
  expect(await next('resizectl doctor')).toMatch(/^kubelet +ok +uses the shim/m);
  boot?.();
  // The platform's own restart, with which a containerd of its own restarts as well.
  await execa('systemctl', ['restart', unit]);
  if (isLost) {
    await calledThrough(runtime);
    await next('resizectl install');
  }
  await calledThrough(OURS);
  // The platform's upgrade starts the new program in the same unit, after it has written its own files.
  await next('resizectl uninstall');
  await calledThrough(runtime);
  expect(await states()).toEqual(off);
  expect(pod.read('cgroup.procs', 'a')).toBe(processes);
}

const K3S = '/run/k3s/containerd/containerd.sock';

test('install: on k3s, one command finds its unit, its drop-ins and its containerd, which ends with each restart', async () => {
  const folder = '/var/lib/rancher/k3s/agent/etc/kubelet.conf.d';
  put(`${folder}/00-k3s-defaults.conf`, defaults(K3S), 0o600);
  const start = `ExecStart=${kubeletCommand(`--config-dir=${folder}`, `--fake-k3s=${K3S}`)}`;
  await startUnit('k3s.service', [start, 'KillMode=process'], `unix://${K3S}`);
  undo.push(() => rm(dirname(FLAGS) + '/cri-resize-shim', { force: true }));
  await follow('k3s', 'k3s.service', `unix://${K3S}`);
  expect(readFileSync(FLAGS, 'utf8')).toBe(
    `CRI_RESIZE_SHIM_FLAGS="--config /etc/cri-resize-shim/config.yaml --container-runtime-endpoint unix://${K3S}"\n`,
  );
  expect(existsSync(`${folder}/99-cri-resize-shim.conf`)).toBe(false);
});

test('install: on RKE2, one command finds the unit that runs, and the kubelet that it has started', async () => {
  const folder = '/var/lib/rancher/rke2/agent/etc/kubelet.conf.d';
  put(`${folder}/00-rke2-defaults.conf`, defaults(K3S), 0o600);
  // The containerd of RKE2 is a process of its own below the same unit.
  const command = kubeletCommand(`--config-dir=${folder}`);
  put(
    '/usr/local/bin/rke2',
    `#!/bin/sh\n${containerdAt(K3S)} &\nuntil [ -S ${K3S} ]; do sleep 0.1; done\n${command} &\nwait\n`,
    0o755,
  );
  writeFileSync(join(UNITS, 'rke2-agent.service'), '[Service]\nExecStart=/bin/false\n');
  undo.push(() => rm(join(UNITS, 'rke2-agent.service')));
  await startUnit('rke2-server.service', ['ExecStart=/usr/local/bin/rke2 server'], `unix://${K3S}`);
  await follow('rke2', 'rke2-server.service', `unix://${K3S}`);
});

test('install: on AKS, one command changes the drop-in that has the flag', async () => {
  const flags = '--runtime-request-timeout=15m --container-runtime-endpoint=unix:///run/containerd/containerd.sock';
  const dropIn = join(UNITS, 'kubelet.service.d/10-containerd-base-flag.conf');
  const text = `[Service]\nEnvironment=KUBELET_CONTAINERD_FLAGS="${flags}"\n`;
  put(dropIn, text);
  await startUnit(
    'kubelet.service',
    [`ExecStart=${kubeletCommand()} $KUBELET_CONTAINERD_FLAGS`],
    'unix:///run/containerd/containerd.sock',
  );
  await follow('aks', 'kubelet.service', 'unix:///run/containerd/containerd.sock');
  expect(readFileSync(dropIn, 'utf8')).toBe(text);
});

test('install: on Flatcar, whose /usr is read-only, one command installs the program below /opt', async () => {
  await startKubelet(`--config=${CONFIG}`);
  await execa('mount', ['--bind', '/usr/local', '/usr/local']);
  undo.push(() => execa('umount', ['/usr/local']));
  await execa('mount', ['-o', 'remount,bind,ro', '/usr/local']);
  await follow('flatcar', 'kubelet.service', 'unix:///run/containerd/containerd.sock');
  expect([existsSync('/opt/lib/cri-resize-shim'), existsSync('/opt/bin/resizectl')]).toEqual([false, false]);
});

test('install: on a node of kubeadm, one command sets the endpoint in the configuration of kubelet', async () => {
  await startKubelet(`--config=${CONFIG}`);
  const before = readFileSync(CONFIG, 'utf8');
  await follow('kubeadm', 'kubelet.service', 'unix:///run/containerd/containerd.sock');
  expect(readFileSync(CONFIG, 'utf8')).toBe(before);
});

test('install: on EKS, one command writes a drop-in where kubelet has a folder for them', async () => {
  const folder = '/etc/kubernetes/kubelet/config.json.d';
  put(
    '/etc/kubernetes/kubelet/config.json',
    '{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","containerRuntimeEndpoint":"unix:///run/containerd/containerd.sock"}\n',
  );
  put(
    `${folder}/40-nodeadm.conf`,
    '{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","maxPods":58}\n',
  );
  put(
    '/etc/eks/kubelet/environment',
    `NODEADM_KUBELET_ARGS=--config=/etc/kubernetes/kubelet/config.json --config-dir=${folder}\n`,
  );
  await startUnit(
    'kubelet.service',
    ['EnvironmentFile=/etc/eks/kubelet/environment', `ExecStart=${kubeletCommand()} $NODEADM_KUBELET_ARGS`],
    'unix:///run/containerd/containerd.sock',
  );
  await follow('eks', 'kubelet.service', 'unix:///run/containerd/containerd.sock');
  expect(existsSync(`${folder}/99-cri-resize-shim.conf`)).toBe(false);
});

test('install: on EKS without settings of kubelet, one command sets the endpoint for now and for the next boot', async () => {
  const kubelet = '/etc/kubernetes/kubelet';
  const environment = '/etc/eks/kubelet/environment';
  const api = '"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1"';
  const config = `{${api},"containerRuntimeEndpoint":"unix:///run/containerd/containerd.sock"}\n`;
  const flags = `NODEADM_KUBELET_ARGS=--config=${kubelet}/config.json`;
  put(`${kubelet}/config.json`, config);
  put(environment, `${flags}\n`);
  mkdirSync('/etc/eks/nodeadm.d');
  undo.push(() => rm('/etc/eks/nodeadm.d', { recursive: true }));
  undo.push(() => rm(`${kubelet}/config.json.d`, { recursive: true, force: true }));
  await startUnit(
    'kubelet.service',
    [`EnvironmentFile=${environment}`, `ExecStart=${kubeletCommand()} $NODEADM_KUBELET_ARGS`],
    'unix:///run/containerd/containerd.sock',
  );
  // At a boot, nodeadm writes the settings of kubelet to a drop-in.
  const boot = (): void => {
    expect(readFileSync(`${kubelet}/config.json`, 'utf8')).toContain(OURS);
    const given = parse(readFileSync('/etc/eks/nodeadm.d/99-cri-resize-shim.yaml', 'utf8')) as {
      readonly kind: string;
      readonly apiVersion: string;
      readonly spec: { readonly kubelet: { readonly config: object } };
    };
    expect([given.kind, given.apiVersion]).toEqual(['NodeConfig', 'node.eks.aws/v1alpha1']);
    writeFileSync(`${kubelet}/config.json`, config);
    const settings = JSON.stringify(given.spec.kubelet.config).slice(1);
    put(`${kubelet}/config.json.d/40-nodeadm.conf`, `{${api},${settings}\n`);
    writeFileSync(environment, `${flags} --config-dir=${kubelet}/config.json.d\n`);
  };
  await follow('eks', 'kubelet.service', 'unix:///run/containerd/containerd.sock', { boot });
  expect(readdirSync('/etc/eks/nodeadm.d')).toEqual([]);
  expect(readFileSync(`${kubelet}/config.json`, 'utf8')).toBe(config);
});

test('install: on GKE with Ubuntu, one command changes the flag in the environment file, again after a boot', async () => {
  const file = '/etc/default/kubelet';
  const flags =
    '--config=/home/kubernetes/kubelet-config.yaml --cloud-provider=external --runtime-cgroups=/system.slice';
  const text = `KUBELET_OPTS="${flags} --container-runtime-endpoint=unix:///run/containerd/containerd.sock"\n`;
  put(
    '/home/kubernetes/kubelet-config.yaml',
    'kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n',
  );
  put(file, text);
  undo.push(() => rm(`${file}.before-cri-resize-shim`, { force: true }));
  await startUnit(
    'kubelet.service',
    [`EnvironmentFile=${file}`, `ExecStart=${kubeletCommand()} $KUBELET_OPTS`],
    'unix:///run/containerd/containerd.sock',
  );
  const boot = (): void => writeFileSync(file, text);
  await follow('gke', 'kubelet.service', 'unix:///run/containerd/containerd.sock', { boot, isLost: true });
  expect(readFileSync(file, 'utf8')).toBe(text);
});

test('install: on MicroK8s, one command changes the file with the flags of kubelet, which is inside kubelite', async () => {
  const [data, common] = ['/var/snap/microk8s/7180', '/var/snap/microk8s/common'];
  const socket = `${common}/run/containerd.sock`;
  undo.push(() => rm('/var/snap', { recursive: true }));
  const args = `--kubeconfig=\${SNAP_DATA}/credentials/kubelet.config
--eviction-hard="memory.available<100Mi,nodefs.available<1Gi"
--root-dir=\${SNAP_COMMON}/var/lib/kubelet
--container-runtime-endpoint=\${SNAP_COMMON}/run/containerd.sock
--containerd=\${SNAP_COMMON}/run/containerd.sock
`;
  put(`${data}/args/kubelet`, args, 0o660);
  writeFileSync(
    join(UNITS, 'snap.microk8s.daemon-containerd.service'),
    `[Service]\nExecStart=${containerdAt(socket)}\n`,
  );
  undo.push(async () => {
    await execa('systemctl', ['stop', 'snap.microk8s.daemon-containerd.service']);
    rmSync(join(UNITS, 'snap.microk8s.daemon-containerd.service'));
  });
  const [program = '', ...words] = kubeletCommand(`--kubelet-args-file=${data}/args/kubelet`).split(' ');
  // systemd sets the name of the program.
  const start = `ExecStart=@${program} /snap/microk8s/7180/kubelite ${words.join(' ')}`;
  const wants = ['Wants=snap.microk8s.daemon-containerd.service', '[Service]'];
  await startUnit('snap.microk8s.daemon-kubelite.service', ['[Unit]', ...wants, start], socket);
  // A refresh of the snap copies the folder.
  const earlier = '/var/snap/microk8s/7000/args';
  const boot = (): void => cpSync(`${data}/args`, earlier, { recursive: true });
  await follow('microk8s', 'snap.microk8s.daemon-kubelite.service', socket, { boot });
  for (const folder of [`${data}/args`, earlier]) {
    expect(readdirSync(folder)).toEqual(['kubelet']);
    expect(readFileSync(`${folder}/kubelet`, 'utf8')).toBe(args);
  }
});
