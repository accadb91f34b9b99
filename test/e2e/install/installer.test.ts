import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
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
  api.nodes.set(NODE, 'True');
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

/** Waits for the state of a running pod. */
async function comesTo(pod: InstallerPod, state: string): Promise<void> {
  let found = '';
  const until = Date.now() + LONG.timeout;
  while (!found.startsWith(state)) {
    await delay(LONG.interval);
    const code = await pod.exitCode();
    if (code !== undefined || Date.now() > until)
      throw new Error(`exit code ${code ?? 'none yet'}, state ${found}: ${pod.log()}`);
    found = await pod.state();
  }
}
const ready = (pod: InstallerPod): Promise<void> => comesTo(pod, 'ready');
async function terminate(pod: InstallerPod): Promise<void> {
  await pod.terminate(direct);
  expect(await pod.exitCode(), pod.log()).toBe(0);
}
const isRunning = async (): Promise<boolean> =>
  (await property('cri-resize-shim-installer.service', 'ActiveState')) === 'active';

test('install: a pod installs the shim and is ready, keeps the shim when it ends, and a pod with the mode uninstall removes it', async () => {
  const processes = web.read('cgroup.procs', 'a');
  expect(processes).toMatch(/^\d+$/);
  api.nodes.set(NODE, 'Unknown');
  const first = await start({ config: 'logLevel: debug\n' });
  await comesTo(first, 'this node is not Ready');
  expect(await states()).toEqual(on);
  api.nodes.set(NODE, 'True');
  await ready(first);
  await calledThrough(OURS);
  expect(failedCalls().length).toBeLessThanOrEqual(1);
  expect(readFileSync(SETTINGS, 'utf8')).toBe('logLevel: debug\n');
  // The unit runs the image's Node, because the host may not have Node.
  expect(await property('cri-resize-shim.service', 'ExecStart')).toContain(` ${PROGRAM}/bin/node `);
  expect(readdirSync(STAGING)).toEqual([]);

  // After an upgrade of the DaemonSet, the new pod finds the shim installed.
  const kubelet = await property('kubelet.service', 'MainPID');
  await terminate(first);
  expect(first.log()).toContain('the node stays as it is');
  const second = await start({ config: 'logLevel: debug\n' });
  await ready(second);
  expect([await states(), await property('kubelet.service', 'MainPID')]).toEqual([on, kubelet]);
  await terminate(second);

  const removal = await start({ mode: 'uninstall' });
  await ready(removal);
  expect(await states()).toEqual(off);
  await calledThrough(CONTAINERD);
  expect(readFileSync(CONFIG, 'utf8')).toBe(kubeletConfig);
  expect([existsSync(PROGRAM), readdirSync(STAGING)]).toEqual([false, []]);
  expect(web.read('cgroup.procs', 'a')).toBe(processes);
});

test('the kubeconfig of the shim survives a failed removal, and is removed if the next configuration does not use it', async () => {
  const kubeconfig = `${STAGING}/kubeconfig`;
  const credentials = '--shim-credentials=/var/run/secrets/kubernetes.io/serviceaccount';
  const first = await start({ config: `kubeconfig: ${kubeconfig}\n`, flags: [credentials] });
  await ready(first);
  const provided = readFileSync(kubeconfig, 'utf8');
  expect([provided.includes(api.token), statSync(kubeconfig).mode & 0o777]).toEqual([true, 0o600]);
  expect(readFileSync(SETTINGS, 'utf8')).toBe(`kubeconfig: ${kubeconfig}\nnodeName: ${NODE}\n`);
  await terminate(first);

  // A removal that fails: kubelet does not start with the socket of containerd.
  writeFileSync(REFUSES, CONTAINERD);
  const removal = await start({ mode: 'uninstall', flags: ['--timeout=20s'] });
  await comesTo(removal, 'failed: set unix://');
  expect([readFileSync(kubeconfig, 'utf8'), await states(), readdirSync(STAGING)]).toEqual([
    provided,
    on,
    ['kubeconfig'],
  ]);
  await terminate(removal);
  rmSync(REFUSES);

  const last = await start({ config: 'logLevel: debug\n' });
  await ready(last);
  expect([existsSync(kubeconfig), readFileSync(SETTINGS, 'utf8')]).toEqual([false, 'logLevel: debug\n']);
});

test('install: a failing installation is rolled back, its pod says why and does not try again, and the next pod installs the shim', async () => {
  writeFileSync(REFUSES, OURS);
  const pod = await start({ flags: ['--timeout=20s'] });
  await comesTo(pod, 'failed: set unix://');
  expect(await pod.state()).toContain('; delete this pod to try again');
  expect([await states(), existsSync(PROGRAM), readdirSync(STAGING)]).toEqual([off, false, []]);
  expect(readFileSync(CONFIG, 'utf8')).toBe(kubeletConfig);
  await calledThrough(CONTAINERD);

  rmSync(REFUSES);
  await terminate(pod);
  await ready(await start());
  expect(await states()).toEqual(on);
});

test('a pod is not ready for a while if its shim crashes, although the fallback starts the shim again', async () => {
  const pod = await start();
  await ready(pod);
  process.kill(Number(await property('cri-resize-shim.service', 'MainPID')), 'SIGKILL');
  await comesTo(pod, 'the shim has ended and was started again');
  await ready(pod);
});

test('install: the host completes an installation whose pod is killed, and the next pod is ready', async () => {
  const first = await start();
  await expect.poll(isRunning, { ...LONG, interval: 50 }).toBe(true);
  await first.kill();
  expect(await isRunning()).toBe(true);
  await expect.poll(() => first.exitCode(), LONG).toBe(137);
  expect(await states()).not.toEqual(on);
  const second = await start();
  await ready(second);
  expect([await states(), readdirSync(STAGING)]).toEqual([on, []]);
  await calledThrough(OURS);
  expect((await execa('node', ['dist/resizectl.js', 'doctor'], { reject: false })).stdout).toMatch(
    /^kubelet +ok +uses the shim/m,
  );
});

test('a node that does not meet the requirements is not changed, and its pod says why', async () => {
  await execa('systemctl', ['stop', 'kubelet.service']);
  const pod = await start();
  await comesTo(pod, 'resizectl: nothing was changed: kubelet.service is inactive');
  expect([await states(), existsSync(PROGRAM)]).toEqual([off, false]);
});
