import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type IncomingMessage, get } from 'node:http';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { CriClient } from '../../support/cri/client.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import {
  CONFIG,
  CONTAINERD,
  OURS,
  REFUSES,
  SETTINGS,
  calledThrough,
  kubeletConfig,
  startKubelet,
  stopKubelet,
} from '../../support/e2e/kubelet-unit.ts';
import { startSystemdNode } from '../../support/e2e/systemd-node.ts';

// On a node where systemd is the first process: npm run node -- --init systemd
// kubelet is a fake, and so is kubeadm. npm run nightly -- --only kubelet has real ones.

const PATCH = '/var/lib/kubelet/instance-config.yaml';
const DROP_INS = '/var/lib/kubelet/drop-ins';
const METRICS = '/run/cri-resize-shim/metrics.sock';
const head = 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n';

let direct: CriClient;
let pod: RunningPod;
beforeAll(async () => ({ direct, pod } = await startSystemdNode(['a'])));
afterAll(async () => {
  await pod.remove();
  direct.close();
});
afterEach(async () => {
  await resizectl('uninstall');
  await stopKubelet();
  for (const path of [PATCH, DROP_INS]) rmSync(path, { recursive: true, force: true });
});

async function resizectl(...args: readonly string[]): Promise<{ readonly text: string; readonly code: number }> {
  const { all, exitCode } = await execa('node', ['dist/resizectl.js', ...args], { reject: false, all: true });
  return { text: all, code: exitCode ?? -1 };
}

async function succeeds(...args: readonly string[]): Promise<string> {
  const ended = await resizectl(...args);
  expect(ended, ended.text).toMatchObject({ code: 0 });
  return ended.text;
}

/** Does what `kubeadm upgrade node phase kubelet-config` does, and what an operator does afterwards. */
async function upgradeNode(): Promise<void> {
  const patch = existsSync(PATCH) ? readFileSync(PATCH, 'utf8') : '';
  writeFileSync(CONFIG, `${head}maxPods: 110\n${patch}`);
  await execa('systemctl', ['restart', 'kubelet.service']);
}

/** The files in the folder of kubelet, with their content. */
const files = (folder: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    readdirSync(folder)
      .filter((name) => name.includes('.'))
      .map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  );

describe('a node of kubeadm', () => {
  const patch = `containerRuntimeEndpoint: "${CONTAINERD}"\n`;

  test('on a node of kubeadm the shim survives an upgrade of the node, and its removal restores all files exactly', async () => {
    writeFileSync(PATCH, patch);
    chmodSync(PATCH, 0o640);
    await startKubelet(`--config=${CONFIG}`);
    const before = files('/var/lib/kubelet');
    const plan = await succeeds('install', '--dry-run');
    expect(plan).toContain(`would: set ${OURS} in ${CONFIG} (backup: `);
    expect(plan).toContain(` and ${PATCH} (backup: `);
    await succeeds('install');
    await calledThrough(OURS);
    expect(readFileSync(PATCH, 'utf8')).toBe(`containerRuntimeEndpoint: "${OURS}"\n`);
    await upgradeNode();
    await calledThrough(OURS);
    expect(await succeeds('doctor')).toMatch(/^kubelet +ok +uses the shim/m);

    writeFileSync(CONFIG, kubeletConfig.replace(CONTAINERD, OURS));
    await succeeds('uninstall');
    await calledThrough(CONTAINERD);
    expect(files('/var/lib/kubelet')).toEqual(before);
    await upgradeNode();
    await calledThrough(CONTAINERD);
  });

  test('a failed installation on a node of kubeadm restores the kubelet configuration and the patch', async () => {
    writeFileSync(PATCH, patch);
    await startKubelet(`--config=${CONFIG}`);
    writeFileSync(REFUSES, OURS);
    const before = files('/var/lib/kubelet');
    const { text: said, code } = await resizectl('install', '--timeout', '20s');
    expect(code, said).toBe(3);
    expect(said).not.toContain('NOT rolled back');
    expect(files('/var/lib/kubelet')).toEqual(before);
    await calledThrough(CONTAINERD);
  });

  test('doctor reports a kubeadm patch without the shim, and an installation sets it without a restart of kubelet', async () => {
    await startKubelet(`--config=${CONFIG}`);
    await succeeds('install');
    writeFileSync(PATCH, patch);
    const { text: said } = await resizectl('doctor');
    expect(said).toMatch(
      /^kubelet +warning +uses the shim .*, but kubeadm upgrade node sets .*containerd\.sock again/m,
    );
    const pid = async (): Promise<string> =>
      (await execa('systemctl', ['show', '--value', '--property=MainPID', 'kubelet.service'])).stdout;
    const kubelet = await pid();
    await succeeds('install');
    expect([readFileSync(PATCH, 'utf8'), await pid()]).toEqual([`containerRuntimeEndpoint: "${OURS}"\n`, kubelet]);
    await succeeds('uninstall');
    expect(readFileSync(PATCH, 'utf8')).toBe(patch);
  });
});

test('with --config-dir an installation adds one drop-in, which doctor lists, and changes no other file', async () => {
  mkdirSync(DROP_INS);
  writeFileSync('/var/lib/kubelet/other.yaml', `${head}containerRuntimeEndpoint: ${CONTAINERD}\n`);
  symlinkSync('/var/lib/kubelet/other.yaml', join(DROP_INS, '50-other.conf'));
  await startKubelet(`--config=${CONFIG}`, `--config-dir=${DROP_INS}`);
  const before = [files('/var/lib/kubelet'), files(DROP_INS)];
  await succeeds('install');
  await calledThrough(OURS);
  expect(readdirSync(DROP_INS)).toEqual(['50-other.conf', '99-cri-resize-shim.conf']);
  expect(files('/var/lib/kubelet')).toEqual(before[0]);
  expect(await succeeds('doctor')).toContain(
    [
      'Runtime endpoint of kubelet, in the order in which it is read:',
      `  the default of kubelet: ${CONTAINERD}`,
      `  ${CONFIG}: ${CONTAINERD}`,
      `  ${DROP_INS}/50-other.conf: ${CONTAINERD}`,
      `  ${DROP_INS}/99-cri-resize-shim.conf: ${OURS} (wins)`,
    ].join('\n'),
  );
  await succeeds('uninstall');
  await calledThrough(CONTAINERD);
  expect([files('/var/lib/kubelet'), files(DROP_INS)]).toEqual(before);
  rmSync('/var/lib/kubelet/other.yaml');
});

async function monitored(path: string): Promise<string> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get({ socketPath: METRICS, path }, resolve).on('error', reject);
  });
  return text(response);
}
const endpointIs = async (state: string): Promise<boolean> =>
  (await monitored('/metrics')).includes(`cri_resize_shim_kubelet_endpoint{state="${state}"} 1\n`);

test('a kubelet that bypasses the shim is reported within a minute in metrics, health, log and doctor until it is repaired', async () => {
  mkdirSync(dirname(SETTINGS), { recursive: true });
  writeFileSync(SETTINGS, `metricsBind: unix://${METRICS}\n`);
  await startKubelet(`--config=${CONFIG}`);
  await succeeds('install');
  await calledThrough(OURS);
  const poll = { timeout: 60_000, interval: 500 };
  await expect.poll(() => endpointIs('shim'), poll).toBe(true);
  expect(await monitored('/readyz?verbose')).toContain('[+]kubelet ok\n');

  await upgradeNode();
  await calledThrough('unix:///run/containerd/containerd.sock');
  await expect.poll(() => endpointIs('past'), poll).toBe(true);
  expect(await monitored('/readyz?verbose')).toMatch(/^\[-\]kubelet failed \(optional\): does not use the shim: /m);
  const { stdout: journal } = await execa('journalctl', ['--no-pager', '--output=cat', '--unit=cri-resize-shim']);
  expect(journal).toContain('kubelet does not use the shim');
  const { text: said } = await resizectl('doctor');
  expect(said).toMatch(/^shim +warning +serves .*, ready, with limits: kubelet: does not use the shim/m);
  expect(said).toMatch(/^kubelet +warning +uses unix:\/\/\/run\/containerd\/containerd.sock, not the shim/m);

  await succeeds('install');
  await calledThrough(OURS);
  await expect.poll(() => endpointIs('shim'), poll).toBe(true);
});
