import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { FAILED } from '../../../src/install/rollout/lease.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { isSystemdNode } from '../../support/cri/pod-cgroup.ts';
import type { PodSettings } from '../../support/e2e/installer-pod.ts';
import { InstallerPod, image, importImage, STAGING } from '../../support/e2e/installer-pod.ts';
import {
  CONFIG,
  CONTAINERD,
  calledThrough,
  FLAGS,
  failedCalls,
  kubeletConfig,
  OURS,
  property,
  REFUSES,
  removePackage,
  SETTINGS,
  startKubelet,
  states,
  UNIT,
} from '../../support/e2e/kubelet-unit.ts';
import { makeCertificate } from '../../support/kubernetes/fake-api-server.ts';
import { FakeClusterApi } from '../../support/kubernetes/fake-cluster-api.ts';

/**
 * The DaemonSet's pod on a node where systemd is the first process: a privileged container of containerd, as in the
 * manifest. The Kubernetes API and kubelet are fakes.
 */

// On a node where systemd is the first process: npm run node -- --init systemd

const NODE = 'node-1';
/** The address of the node as its pods see it. */
const GATEWAY = '10.88.0.1';
const LABEL = 'cri-resize-shim.io/install';
const PROGRAM = '/usr/local/lib/cri-resize-shim';
const LONG = { timeout: 90_000, interval: 200 };
// A test installs up to three times. Each takes 10 s, and 40 s if other tests run on this machine.
vi.setConfig({ testTimeout: 300_000 });
const off = ['inactive', 'inactive', 'inactive'];
const on = ['active', 'active', 'active'];

const direct = new CriClient(CONTAINERD);
let api: FakeClusterApi;
let pods: InstallerPod[];
/** A pod of the node that runs during all tests. */
let web: RunningPod;

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  await importImage(image);
  const resources = { memory_limit_in_bytes: 64 * MiB, cpu_shares: 102 };
  web = await runPod(direct, { name: 'web', containers: [{ name: 'a', command: ['sleep', '1000000'], resources }] });
});
afterAll(async () => {
  await web.remove();
  direct.close();
});

beforeEach(async () => {
  pods = [];
  api = await new FakeClusterApi(makeCertificate('cluster', GATEWAY), GATEWAY).start();
  api.set(NODE, { labels: { [LABEL]: 'true' } });
  await startKubelet(`--config=${CONFIG}`);
});
afterEach(async () => {
  for (const pod of pods) await pod.remove();
  await api.stop();
  await execa('node', ['dist/resizectl.js', 'uninstall'], { reject: false });
  await execa('systemctl', ['stop', 'kubelet.service']);
  for (const path of [UNIT, dirname(SETTINGS), FLAGS, REFUSES]) rmSync(path, { recursive: true, force: true });
  await execa('systemctl', ['daemon-reload']);
});

async function start(settings: Partial<PodSettings> = {}): Promise<InstallerPod> {
  const pod = await InstallerPod.start(direct, { api, nodeName: NODE, ...settings });
  pods.push(pod);
  return pod;
}

/** Waits for a state that a running pod reaches. A pod that has ended reports the reason in its log. */
async function comesTo(pod: InstallerPod, holds: () => boolean | Promise<boolean>): Promise<void> {
  const until = Date.now() + LONG.timeout;
  while (!(await holds())) {
    const code = await pod.exitCode();
    if (code !== undefined || Date.now() > until) throw new Error(`exit code ${code ?? 'none yet'}: ${pod.log()}`);
    await delay(LONG.interval);
  }
}
const says = (pod: InstallerPod, text: string): Promise<void> => comesTo(pod, () => pod.log().includes(text));
const ready = (pod: InstallerPod): Promise<void> =>
  comesTo(pod, async () => (await pod.exitCode()) === undefined && pod.isReady());
const ended = async (pod: InstallerPod): Promise<void> => {
  await expect.poll(() => pod.exitCode(), LONG).toBeDefined();
  expect(await pod.exitCode(), pod.log()).toBe(0);
};
const holder = (): string | undefined => api.lease?.spec.holderIdentity;
const isRunning = async (): Promise<boolean> =>
  (await property('cri-resize-shim-installer.service', 'ActiveState')) === 'active';

test('install: a labelled node waits for its turn, installs the shim, keeps it when the pod ends, and uninstalls it without label', async () => {
  api.writeLease(({ metadata, spec }) => ({ metadata, spec: { ...spec, holderIdentity: 'node-2' } }));
  const processes = web.read('cgroup.procs', 'a');
  expect(processes).toMatch(/^\d+$/);
  const first = await start({ config: 'logLevel: debug\n' });
  await says(first, 'waiting: it is the turn of node-2');
  expect([await states(), await first.isReady()]).toEqual([off, false]);

  api.writeLease(({ metadata }) => ({ metadata, spec: {} }));
  await ready(first);
  expect(await states()).toEqual(on);
  await calledThrough(OURS);
  expect(failedCalls().length).toBeLessThanOrEqual(1);
  expect(readFileSync(SETTINGS, 'utf8')).toBe('logLevel: debug\n');
  // The unit runs the image's Node, because the host may not have Node.
  expect(await property('cri-resize-shim.service', 'ExecStart')).toContain(`path=${PROGRAM}/bin/node ;`);
  expect(api.eventReasons()).toEqual([`${NODE}: ShimInstalled`]);
  expect(holder()).toBeUndefined();
  expect(readdirSync(STAGING)).toEqual([]);

  // After an upgrade of the DaemonSet, the new pod finds the shim installed and takes no turn.
  const [kubelet, turns] = [await property('kubelet.service', 'MainPID'), api.holders.length];
  await first.terminate(direct);
  await ended(first);
  expect(first.log()).toContain('this node has the label: the shim stays installed');
  const second = await start({ config: 'logLevel: debug\n' });
  await ready(second);
  expect([await states(), await property('kubelet.service', 'MainPID'), api.holders.length]).toEqual([
    on,
    kubelet,
    turns,
  ]);

  // Terminates the pod through the shim, as kubelet does. The shim stops before the pod has ended.
  api.set(NODE, { labels: {} });
  const through = new CriClient(OURS);
  await second.terminate(through).catch(() => undefined);
  through.close();
  await ended(second);
  expect(second.log()).toContain('the label was removed: uninstalling the shim');
  expect(await states()).toEqual(off);
  await calledThrough(CONTAINERD);
  expect(readFileSync(CONFIG, 'utf8')).toBe(kubeletConfig);
  expect([existsSync(PROGRAM), readdirSync(STAGING), holder()]).toEqual([false, [], undefined]);
  expect(api.eventReasons()).toEqual([
    `${NODE}: ShimInstalled`,
    `${NODE}: ShimUninstalling`,
    `${NODE}: ShimUninstalled`,
  ]);
  expect(web.read('cgroup.procs', 'a')).toBe(processes);
});

test('the kubeconfig of the shim changes only in the turn of its node, survives a failed removal, and is removed if unused', async () => {
  const kubeconfig = `${STAGING}/kubeconfig`;
  const credentials = '--shim-credentials=/var/run/secrets/kubernetes.io/serviceaccount';
  const first = await start({ config: `kubeconfig: ${kubeconfig}\n`, flags: [credentials] });
  await ready(first);
  const provided = readFileSync(kubeconfig, 'utf8');
  expect([provided.includes(api.token), statSync(kubeconfig).mode & 0o777]).toEqual([true, 0o600]);
  await first.terminate(direct);

  // Without credentials: the shim still needs the file while the pod waits.
  api.writeLease(({ metadata }) => ({ metadata, spec: { holderIdentity: 'node-2' } }));
  const second = await start({ config: 'logLevel: debug\n' });
  await says(second, 'waiting: it is the turn of node-2');
  expect([readFileSync(kubeconfig, 'utf8'), readFileSync(SETTINGS, 'utf8')]).toEqual([
    provided,
    `kubeconfig: ${kubeconfig}\nnodeName: ${NODE}\n`,
  ]);
  await second.terminate(direct);
  expect([existsSync(kubeconfig), readdirSync(STAGING)]).toEqual([true, ['kubeconfig']]);

  // A removal that fails: kubelet does not start with the socket of containerd.
  writeFileSync(REFUSES, CONTAINERD);
  api.writeLease(({ metadata }) => ({ metadata, spec: {} }));
  const third = await start({ config: `kubeconfig: ${kubeconfig}\n`, flags: [credentials, '--timeout=20s'] });
  await ready(third);
  api.set(NODE, { labels: {} });
  await third.terminate(direct);
  expect(third.log()).toContain('ShimUninstallFailed: failed: set unix://');
  expect([readFileSync(kubeconfig, 'utf8'), await states(), readdirSync(STAGING)]).toEqual([
    provided,
    on,
    ['kubeconfig'],
  ]);
  rmSync(REFUSES);
  api.set(NODE, { labels: { [LABEL]: 'true' } });
  // The failure has halted this revision.
  api.writeLease(({ metadata, spec }) => ({ metadata: { ...metadata, annotations: {} }, spec }));

  const fourth = await start({ config: 'logLevel: debug\n' });
  await ready(fourth);
  expect([existsSync(kubeconfig), readFileSync(SETTINGS, 'utf8')]).toEqual([false, 'logLevel: debug\n']);
});

test('install: a failing installation is rolled back, halts the rollout, and is retried when an operator resumes the rollout', async () => {
  writeFileSync(REFUSES, OURS);
  const pod = await start({ flags: ['--timeout=20s'] });
  await says(pod, 'ShimInstallFailed');
  await says(pod, 'waiting: halted: node-1: failed: set unix://');
  expect(api.lease?.metadata.annotations?.[FAILED]).toMatch(/^{"revision-1":"node-1: failed: set unix:/);
  expect([await states(), holder(), existsSync(PROGRAM)]).toEqual([off, undefined, false]);
  expect(readFileSync(CONFIG, 'utf8')).toBe(kubeletConfig);
  await calledThrough(CONTAINERD);
  expect(await pod.isReady()).toBe(false);

  rmSync(REFUSES);
  api.writeLease(({ metadata, spec }) => ({ metadata: { ...metadata, annotations: {} }, spec }));
  await ready(pod);
  expect([await states(), api.eventReasons()]).toEqual([on, [`${NODE}: ShimInstallFailed`, `${NODE}: ShimInstalled`]]);
});

test('a canary node halts its release if its shim crashes, although the fallback starts the shim again', async () => {
  api.set(NODE, { labels: { [LABEL]: 'true', 'cri-resize-shim.io/canary': 'true' } });
  const pod = await start({ flags: ['--canaries=1'] });
  await ready(pod);
  await says(pod, 'this node is a canary');
  const pid = Number(await property('cri-resize-shim.service', 'MainPID'));
  process.kill(pid, 'SIGKILL');
  await says(pod, 'ShimCanaryFailed: the shim has ended and was started again');
  expect(await states()).toEqual(on);
  expect(api.lease?.metadata.annotations?.[FAILED]).toContain('node-1: canary: the shim has ended');
});

test('install: the host completes an installation whose pod is killed, and the next pod ends the turn', async () => {
  const first = await start();
  await says(first, 'it is the turn of this node');
  await expect.poll(isRunning, { ...LONG, interval: 50 }).toBe(true);
  await first.kill();
  expect(await isRunning()).toBe(true);
  await expect.poll(() => first.exitCode(), LONG).toBe(137);
  expect(await states()).not.toEqual(on);
  const second = await start();
  await ready(second);
  expect(second.log()).not.toContain('  done:');
  expect([await states(), holder(), api.eventReasons()]).toEqual([on, undefined, [`${NODE}: ShimInstalled`]]);
  await calledThrough(OURS);
  expect((await execa('node', ['dist/resizectl.js', 'doctor'], { reject: false })).stdout).toMatch(
    /^kubelet +ok +uses the shim/m,
  );
});

test('a node that does not meet the requirements is not changed, and a warning event is created', async () => {
  await execa('systemctl', ['stop', 'kubelet.service']);
  const pod = await start();
  await says(pod, 'ShimInstallRefused: resizectl: nothing was changed: kubelet.service is inactive');
  expect([await states(), api.holders, existsSync(PROGRAM)]).toEqual([off, [], false]);
  // The log line precedes the event.
  await expect
    .poll(() => api.events, LONG)
    .toMatchObject([{ type: 'Warning', regarding: { kind: 'Node', name: NODE }, metadata: { namespace: 'default' } }]);
});
