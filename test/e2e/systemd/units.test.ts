import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { isSystemdNode } from '../../support/cri/pod-cgroup.ts';
import { DebPackage } from '../../support/e2e/deb-package.ts';
import {
  CONFIG,
  CONTAINERD,
  calledThrough,
  FLAGS,
  kubeletCommand,
  OURS,
  startKubelet,
  states,
  stopKubelet,
  UNIT,
} from '../../support/e2e/kubelet-unit.ts';
import { resizesThrough } from '../../support/e2e/served.ts';

/**
 * Installs and runs what `npm run package` makes: the folder by itself, and the .deb under systemd with all of the
 * unit's hardening.
 */

// On a node where systemd is the first process: npm run node -- --init systemd

const SERVICE = 'cri-resize-shim.service';
const SOCKETS = ['cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];
const BYPASS = 'cri-resize-shim-bypass.service';
const CRI = '/run/cri-resize-shim/cri-resize-shim.sock';

let deb: DebPackage;
const direct = new CriClient('unix:///run/containerd/containerd.sock');

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  deb = await DebPackage.make();
  await deb.install();
  await systemctl('start', ...SOCKETS, SERVICE);
});
afterAll(async () => {
  await systemctl('stop', SERVICE, ...SOCKETS);
  direct.close();
  deb.dispose();
});

/** Rejects with the journal of the service if systemctl fails. */
async function systemctl(...args: readonly string[]): Promise<string> {
  const { stdout, exitCode } = await execa('systemctl', ['--no-pager', ...args], { reject: false });
  if (exitCode === 0) return stdout;
  const { stdout: journal } = await execa('journalctl', ['--no-pager', '--unit', SERVICE]);
  throw new Error(`systemctl ${args.join(' ')}: ${journal}`);
}

const property = (name: string): Promise<string> => systemctl('show', '--value', '--property', name, SERVICE);

/** Writes a drop-in of the service, and returns its path. */
function dropIn(name: string, ...lines: readonly string[]): string {
  const file = `/etc/systemd/system/${SERVICE}.d/${name}.conf`;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, ['[Service]', ...lines, ''].join('\n'));
  return file;
}

test('upgrade: the .deb starts a service that uses the sockets of systemd and resizes a pod with its volume', async () => {
  expect(await property('ActiveState')).toBe('active');
  expect(await property('StatusText')).toBe(`serving ${CRI}`);
  expect(readlinkSync(`/proc/${await property('MainPID')}/exe`)).toBe('/usr/lib/cri-resize-shim/bin/node');
  const { stdout } = await execa('stat', [
    '-c',
    '%a %U %G',
    '/run/cri-resize-shim',
    CRI,
    '/run/cri-resize-shim/resize.sock',
  ]);
  expect(stdout.split('\n')).toEqual(['711 root root', '660 root root', '600 root root']);
  await resizesThrough(direct, { cri: CRI, resize: '/run/cri-resize-shim/resize.sock', name: 'deb' });
});

test('upgrade: the service has only the rights that its unit grants', async () => {
  const pid = await property('MainPID');
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  // CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, SYS_ADMIN 21.
  expect(status).toMatch(/^CapBnd:\t000000000020000b$/m);
  expect(status).toMatch(/^CapEff:\t000000000020000b$/m);
  expect(status).toMatch(/^NoNewPrivs:\t1$/m);
  expect(status).toMatch(/^Seccomp:\t2$/m);
  expect(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8').trim()).toBe('-999');
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').split('\n');
  const optionsAt = (path: string): string | undefined =>
    mounts.findLast((line) => line.split(' ')[4] === path)?.split(' ')[5];
  expect(optionsAt('/')).toMatch(/^ro,/);
  expect(optionsAt('/proc/sys')).toMatch(/^ro,/);
  expect(optionsAt('/sys/fs/cgroup')).toMatch(/^rw,/);
});

test.each([
  ['systemctl restart', () => systemctl('restart', SERVICE)],
  ['an upgrade of the .deb', () => deb.install()],
])('upgrade: calls are answered during %s', async (_, replace) => {
  const before = await property('MainPID');
  const client = new CriClient(`unix://${CRI}`);
  await client.version();
  const calls: Promise<unknown>[] = [];
  const timer = setInterval(() => calls.push(client.version()), 20);
  await replace();
  clearInterval(timer);
  expect((await Promise.allSettled(calls)).filter(({ status }) => status === 'rejected')).toEqual([]);
  expect(calls.length).toBeGreaterThan(5);
  expect(await property('MainPID')).not.toBe(before);
  client.close();
});

test('upgrade: a hanging service is killed by the watchdog, and the next one serves', async () => {
  // Long enough that a busy machine does not keep the service from its notifications.
  const dropped = dropIn('watchdog', 'WatchdogSec=5s', 'WatchdogSignal=SIGKILL');
  await systemctl('daemon-reload');
  await systemctl('restart', SERVICE);
  try {
    const pid = Number(await property('MainPID'));
    // Waits longer than the watchdog timeout: systemd does not kill a live service.
    await new Promise((resolve) => setTimeout(resolve, 7000));
    expect(Number(await property('MainPID'))).toBe(pid);
    process.kill(pid, 'SIGSTOP');
    const client = new CriClient(`unix://${CRI}`);
    expect(await client.version()).toMatchObject({ runtime_name: 'containerd' });
    expect(await property('MainPID')).not.toMatch(new RegExp(`^(0|${pid})$`));
    expect(await systemctl('show', '--value', '--property=ActiveEnterTimestampMonotonic', BYPASS)).toMatch(/^0?$/);
    client.close();
  } finally {
    rmSync(dropped);
    await systemctl('daemon-reload');
    await systemctl('restart', SERVICE);
  }
});

test('upgrade: the package folder runs on its own from any location', async () => {
  const tree = readdirSync(deb.folder).find((name) => name.endsWith('-x64') || name.endsWith('-arm64'))!;
  const installed = '/opt/somewhere/else';
  mkdirSync(dirname(installed), { recursive: true });
  await execa('cp', ['-a', join(deb.folder, tree), installed]);
  const cri = '/run/by-itself/cri.sock';
  const resize = '/run/by-itself/resize.sock';
  const flags = ['--listen', cri, '--resize-listen', resize, '--state-folder', join(deb.folder, 'state')];
  const daemon = execa(join(installed, 'bin/cri-resize-shim'), flags, { cwd: '/', reject: false });
  await new Promise<void>((resolve) =>
    daemon.stderr.on('data', (text: Buffer) => {
      if (String(text).includes('"serving"')) resolve();
    }),
  );
  await resizesThrough(direct, { cri, resize, name: 'tree' });
  daemon.kill('SIGTERM');
  expect(await daemon).toMatchObject({ exitCode: 0 });
});

test('the .deb contains the manual page, completions, an editable configuration and an SBOM', async () => {
  const { stdout: page } = await execa('zcat', ['/usr/share/man/man1/resizectl.1.gz']);
  expect(page).toContain('.TH');
  expect(readFileSync('/usr/share/bash-completion/completions/resizectl', 'utf8')).toContain('resizectl');
  expect(readFileSync('/usr/share/zsh/vendor-completions/_resizectl', 'utf8')).toMatch(/^#compdef resizectl/);
  expect(readFileSync('/usr/share/fish/vendor_completions.d/resizectl.fish', 'utf8')).toContain('complete');
  const withoutNode = { env: { PATH: '' }, extendEnv: false };
  expect((await execa('/usr/bin/resizectl', ['version', '--help'], withoutNode)).stdout).toContain('resizectl');
  const { stdout: sbom } = await execa('zcat', ['/usr/share/doc/cri-resize-shim/sbom.cdx.json.gz']);
  const { bomFormat, components } = JSON.parse(sbom) as { bomFormat: string; components: { name: string }[] };
  expect(bomFormat).toBe('CycloneDX');
  const names = components.map(({ name }) => name);
  for (const name of ['@grpc/grpc-js', 'koffi', 'pino', 'zod', 'protobufjs', 'long', 'node'])
    expect(names).toContain(name);
  expect(names).not.toContain('vitest');
  expect(names.filter((name) => name.startsWith('@koromix/'))).toEqual([`@koromix/koffi-linux-${process.arch}`]);
  // Every setting can be edited, and an invalid one is reported.
  const config = readFileSync('/etc/cri-resize-shim/config.yaml', 'utf8');
  expect(config).toContain('#stateFolder: /var/lib/cri-resize-shim\n');
  const edited = join(deb.folder, 'edited.yaml');
  writeFileSync(edited, config.replace(/^#(\w+: )/gm, '$1').replace(/^logLevel: .*$/m, 'logLevel: loud'));
  const refused = await execa('cri-resize-shim', ['--config', edited], { reject: false });
  expect(refused.stderr).toContain('logLevel: "loud" must be one of');
});

test('an upgrade of the .deb starts a shim that has failed', async () => {
  const flags = '/etc/default/cri-resize-shim';
  const before = readFileSync(flags, 'utf8');
  const state = (unit: string) => systemctl('show', '--value', '--property=ActiveState', unit);
  // Sets the number of failures, because the next start would otherwise be after five minutes.
  mkdirSync('/run/cri-resize-shim-fallback', { recursive: true });
  writeFileSync('/run/cri-resize-shim-fallback/failures', '50\n');
  writeFileSync(flags, 'CRI_RESIZE_SHIM_FLAGS=--no-such-flag\n');
  try {
    await systemctl('restart', SERVICE).catch(() => undefined);
    await expect.poll(() => state(BYPASS), { timeout: 30_000 }).toBe('active');
  } finally {
    writeFileSync(flags, before);
  }
  expect(await state(SERVICE)).toBe('failed');
  await deb.install();
  await expect.poll(() => state(SERVICE), { timeout: 60_000 }).toBe('active');
  await expect.poll(() => state(BYPASS), { timeout: 60_000 }).toBe('inactive');
  rmSync('/run/cri-resize-shim-fallback/failures');
});

describe('removal of the .deb', () => {
  /** The fake kubelet requires a list of pods that is not empty. */
  let pod: RunningPod;
  beforeAll(async () => {
    await systemctl('start', ...SOCKETS, SERVICE);
    const resources = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 10_000, cpu_period: 100_000 };
    const containers = [{ name: 'a', command: ['sleep', '1000000'], resources: { ...resources, cpu_shares: 102 } }];
    pod = await runPod(direct, { name: 'web', containers });
  });
  afterAll(async () => {
    await stopKubelet();
    await pod.remove();
  });

  test.each([
    ['', () => Promise.resolve()],
    // The restarted kubelet does not find the shim.
    [' if the units are stopped', () => systemctl('stop', ...SOCKETS, SERVICE)],
    [
      ' if a drop-in starts the shim with another program',
      async () => {
        const [, command = ''] = /argv\[\]=(.*?) ;/.exec(await property('ExecStart')) ?? [];
        dropIn('nice', 'ExecStart=', `ExecStart=/usr/bin/nice ${command}`);
        await systemctl('daemon-reload');
        await systemctl('restart', SERVICE);
      },
    ],
  ])('upgrade: removal of the .deb points kubelet back at containerd first%s', async (_, before) => {
    await startKubelet(`--config=${CONFIG}`);
    const { all, exitCode } = await execa('resizectl', ['install'], { reject: false, all: true });
    expect(exitCode, all).toBe(0);
    await calledThrough(OURS);
    try {
      await before();
      const removed = await deb.remove();
      expect(removed.exitCode, removed.all).toBe(0);
      await calledThrough(CONTAINERD);
      expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);
      expect(existsSync('/usr/lib/cri-resize-shim')).toBe(false);
    } finally {
      rmSync(`/etc/systemd/system/${SERVICE}.d/nice.conf`, { force: true });
      await deb.install();
    }
  });

  test('removal of the .deb points the kubelet of k3s back at the containerd of k3s', async () => {
    await stopKubelet();
    const [folder, socket] = ['/var/lib/rancher/k3s/agent/etc/kubelet.conf.d', '/run/k3s/containerd/containerd.sock'];
    const unit = '/etc/systemd/system/k3s.service';
    mkdirSync(folder, { recursive: true });
    const command = kubeletCommand(`--config-dir=${folder}`, `--fake-k3s=${socket}`);
    writeFileSync(
      join(folder, '00-k3s-defaults.conf'),
      `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://${socket}\n`,
    );
    writeFileSync(unit, `[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=${command}\nRestart=always\n`);
    await systemctl('daemon-reload');
    await systemctl('start', 'k3s.service');
    try {
      await calledThrough(`unix://${socket}`);
      const { all, exitCode } = await execa('resizectl', ['install'], { reject: false, all: true });
      expect(exitCode, all).toBe(0);
      await calledThrough(OURS);
      const removed = await deb.remove();
      expect(removed.exitCode, removed.all).toBe(0);
      await calledThrough(`unix://${socket}`);
      expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);
    } finally {
      await systemctl('stop', 'k3s.service');
      rmSync(unit);
      rmSync('/var/lib/rancher', { recursive: true });
      rmSync(FLAGS, { force: true });
      await deb.install();
      await startKubelet(`--config=${CONFIG}`);
    }
  });

  test('removal of the .deb does not stop units that start another installation', async () => {
    const [etc, packaged] = ['/etc/systemd/system', '/usr/lib/systemd/system'];
    const units = readdirSync(packaged).filter((name) => name.startsWith('cri-resize-shim'));
    await execa('cp', ['-a', '/usr/lib/cri-resize-shim', '/opt/other']);
    for (const unit of units) {
      const text = readFileSync(join(packaged, unit), 'utf8');
      writeFileSync(join(etc, unit), text.replaceAll('/usr/lib/cri-resize-shim/', '/opt/other/'));
    }
    await systemctl('daemon-reload');
    await systemctl('start', ...SOCKETS, SERVICE);
    await systemctl('restart', SERVICE);
    try {
      const removed = await deb.remove();
      expect(removed.exitCode, removed.all).toBe(0);
      expect(await states()).toEqual(['active', 'active', 'active']);
    } finally {
      await deb.install();
      for (const unit of units) rmSync(join(etc, unit));
      rmSync('/opt/other', { recursive: true });
      await systemctl('daemon-reload');
      await systemctl('restart', SERVICE);
    }
  });

  test('upgrade: removal of the .deb is rejected if kubelet cannot be pointed back, and the shim still serves kubelet', async () => {
    await systemctl('start', ...SOCKETS, SERVICE);
    const flag = `--container-runtime-endpoint=${OURS}`;
    await execa('sed', ['-i', `s|^ExecStart=.*|& ${flag} ${flag}|`, UNIT]);
    await systemctl('daemon-reload');
    await systemctl('restart', 'kubelet.service');
    await calledThrough(OURS);
    const refused = await deb.remove();
    expect(refused.exitCode, refused.all).not.toBe(0);
    expect(refused.all).toContain('cri-resize-shim is not removed: kubelet may use it');
    expect(await states()).toEqual(['active', 'active', 'active']);
    await calledThrough(OURS);
  });
});
