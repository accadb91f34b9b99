import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { expect } from 'vitest';

/** A fake kubelet under systemd, and the units of the shim: what an installation changes on a node. */

export const CONTAINERD = 'unix:///run/containerd/containerd.sock';
export const OURS = 'unix:///run/cri-resize-shim/cri-resize-shim.sock';
export const CONFIG = '/var/lib/kubelet/config.yaml';
/** A link to Node, because the process name must be kubelet. */
const PROGRAM = '/opt/fake-kubelet/kubelet';
const LOG = '/run/fake-kubelet.log';
/** The endpoint with which the fake kubelet refuses to start. */
export const REFUSES = '/run/fake-kubelet-refuses';
export const SETTINGS = '/etc/cri-resize-shim/config.yaml';
export const FLAGS = '/etc/default/cri-resize-shim';
export const UNIT = '/etc/systemd/system/kubelet.service';
export const UNITS = ['cri-resize-shim.service', 'cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];

export const kubeletConfig = `# This node's own.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
clusterDNS:
- 10.96.0.10 # the cluster's
containerRuntimeEndpoint: ${CONTAINERD} # set by the installer
maxPods: 110
`;

/** Returns the command line of the fake kubelet, with its program in place. */
export function kubeletCommand(...flags: readonly string[]): string {
  mkdirSync(dirname(PROGRAM), { recursive: true });
  rmSync(PROGRAM, { force: true });
  symlinkSync(process.execPath, PROGRAM);
  rmSync(LOG, { force: true });
  return [PROGRAM, resolve('dist/tools/fake-kubelet.js'), LOG, REFUSES, ...flags].join(' ');
}

export async function startKubelet(...flags: readonly string[]): Promise<void> {
  writeFileSync(CONFIG, kubeletConfig);
  const command = kubeletCommand(...flags);
  writeFileSync(
    UNIT,
    `[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=${command}\nRestart=always\nRestartSec=1\n`,
  );
  await execa('systemctl', ['daemon-reload']);
  await execa('systemctl', ['start', 'kubelet.service']);
  await calledThrough(CONTAINERD);
}

export interface Call {
  readonly endpoint: string;
  readonly error?: string;
  readonly bytes?: number;
}

export const calls = (): readonly Call[] =>
  (existsSync(LOG) ? readFileSync(LOG, 'utf8') : '')
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Call]));

/** Waits for the next successful call of the fake kubelet, which has to go to this endpoint. */
export async function calledThrough(endpoint: string): Promise<void> {
  const before = calls().length;
  const isThere = (): boolean =>
    calls()
      .slice(before)
      .some((call) => call.endpoint === endpoint && (call.bytes ?? 0) > 0);
  await expect.poll(isThere, { timeout: 60_000, interval: 200 }).toBe(true);
}

export const failedCalls = (): readonly Call[] => calls().filter(({ error }) => error !== undefined);

export async function property(unit: string, name: string): Promise<string> {
  return (await execa('systemctl', ['show', '--value', `--property=${name}`, unit])).stdout;
}

export const states = (): Promise<readonly string[]> => Promise.all(UNITS.map((unit) => property(unit, 'ActiveState')));

/** Removes the files that a test of the package has left on this node. */
export async function removePackage(): Promise<void> {
  await execa('systemctl', ['disable', '--now', ...UNITS], { reject: false });
  for (const folder of ['/etc/systemd/system', '/usr/lib/systemd/system'])
    for (const name of readdirSync(folder))
      if (name.startsWith('cri-resize-shim')) rmSync(join(folder, name), { recursive: true });
  for (const path of [dirname(SETTINGS), FLAGS, '/run/cri-resize-shim']) rmSync(path, { recursive: true, force: true });
  await execa('systemctl', ['daemon-reload']);
}

/** Stops the fake kubelet and removes everything that an installation may have left. */
export async function stopKubelet(): Promise<void> {
  // On some platforms there is no such unit.
  await execa('systemctl', ['stop', 'kubelet.service'], { reject: false });
  for (const path of [UNIT, `${UNIT}.d`, dirname(SETTINGS), FLAGS, REFUSES])
    rmSync(path, { recursive: true, force: true });
  await execa('systemctl', ['daemon-reload']);
}
