import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Node } from '../../../src/install/host/site.ts';
import { diagnose, isAtLeast, numbersOf } from '../../../src/install/node/checks.ts';
import type { Finding } from '../../../src/install/node/finding.ts';
import { checkInstallation } from '../../../src/install/node/program.ts';
import { answeringRuntime, FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// Runs on a folder instead of a node. test/e2e/command-line/doctor.test.ts tests a real node.
let fake: FakeInstallNode;

describe('checks of a node', () => {
  beforeEach(() => (fake = new FakeInstallNode()));

  afterEach(() => fake.remove());

  async function found(check: string, change: Partial<Node> = {}): Promise<Finding> {
    const all = await diagnose({ ...fake.node, ...change });
    return all.find((finding) => finding.check === check)!;
  }

  test.each([
    ['user', { uid: 0 }, 'ok', 'root'],
    ['user', { uid: 1000 }, 'failed', 'uid 1000'],
    ['node', { nodeVersion: '24.0.0' }, 'ok', 'Node 24.0.0'],
    ['node', { nodeVersion: '26.10.0' }, 'ok', 'Node 26.10.0'],
    ['node', { nodeVersion: '20.20.2' }, 'failed', 'Node 20.20.2 is too old'],
    ['node', { nodeVersion: '23.11.1' }, 'failed', 'Node 23.11.1 is too old'],
    ['kernel', { kernel: '6.1.0-18-amd64' }, 'ok', 'Linux 6.1.0-18-amd64'],
    ['kernel', { kernel: '5.15.0' }, 'warning', 'Linux 5.15.0 has no memory.reclaim'],
    ['kernel', { kernel: '4.19.0' }, 'warning', 'Linux 4.19.0 has neither memory.reclaim nor fspick'],
    ['cgroups', { cgroupRoot: '/nowhere' }, 'failed', 'no cgroup file system at /nowhere'],
    ['systemd', {}, 'ok', 'init system of this node'],
    ['systemd', { systemdFolder: '/nowhere' }, 'warning', 'not the init system of this node'],
    ['containerd', {}, 'failed', 'containerd.sock: connect ENOENT'],
    ['shim', {}, 'ok', 'not running: no socket at '],
    ['kubelet', { systemdFolder: '/nowhere' }, 'warning', 'not checked: systemd is not the init system of this node'],
    ['state room', {}, 'ok', ' MiB free for '],
    ['state folder', {}, 'ok', 'is created at the first start'],
  ] as const)('check %s with %o is %s: %s', async (check, change, result, says) => {
    const finding = await found(check, change);
    expect(finding).toMatchObject({ check, result });
    expect(finding.found).toContain(says);
    expect(finding.remedy === '').toBe(result === 'ok');
  });

  test('check program room fails before an installation, and warns after it', async () => {
    const full = { programSpace: 2 ** 60 };
    expect(await found('program room', full)).toMatchObject({
      result: 'failed',
      remedy: `free disk space: ${2 ** 40} MiB are needed`,
    });
    fake.put('cri-resize-shim/bin/cri-resize-shim', '');
    expect(await found('program room', full)).toMatchObject({ result: 'warning' });
    expect(await found('program room')).toMatchObject({ result: 'ok' });
  });

  test('check containerd fails with CRI-O, so that it is not put behind the shim', async () => {
    const stop = await answeringRuntime(fake.node.containerd, 'cri-o');
    expect(await found('containerd')).toMatchObject({
      result: 'failed',
      found: `${fake.node.containerd}: CRI-O v2.1.0 is not supported`,
      remedy: 'see docs/install/other.md',
    });
    stop();
  });

  test('check shim reports a stale socket', async () => {
    writeFileSync(fake.node.listen, '');
    expect(await found('shim')).toMatchObject({
      result: 'warning',
      found: expect.stringContaining('does not answer') as string,
    });
  });

  test('check bypass recognizes the entry point of the image, and warns about units that do not start the bypass', async () => {
    expect(await found('bypass', { systemdFolder: '/nowhere' })).toMatchObject({ result: 'ok' });
    const [state, used] = ['LoadState=loaded\\nActiveState=inactive\\nMainPID=0', 'cri-resize-shim-fallback.service'];
    const systemd = (onFailure: string): void =>
      fake.systemctl(`case "$*" in *OnFailure*) echo "OnFailure=${onFailure}" ;; *) printf '${state}\\n' ;; esac`);
    systemd(used);
    expect(await found('bypass')).toMatchObject({ result: 'ok', found: 'ready to serve if the shim fails' });
    systemd('');
    expect(await found('bypass')).toMatchObject({
      result: 'warning',
      found: expect.stringContaining('a version without it') as string,
    });
    // A container with the /run of the node, but no systemctl that answers.
    fake.systemctl('exit 1');
    fake.put('.shim.sock.bypass', 'ActiveState=inactive\nActiveEnterTimestampMonotonic=0\n');
    expect(await found('bypass')).toMatchObject({
      result: 'ok',
      found: expect.stringContaining('entry point') as string,
    });
    fake.put('.shim.sock.bypass', 'ActiveState=active\nActiveEnterTimestampMonotonic=@1700000000\n');
    expect(await found('bypass')).toMatchObject({ result: 'failed' });
    const stop = await answeringRuntime(fake.node.listen);
    const served = await found('bypass');
    stop();
    expect(served).toMatchObject({
      result: 'warning',
      found: expect.stringContaining('serves clients since 2023-11-14T22:13:20.000Z') as string,
    });
  });

  test('check bypass fails if a bypass is active and no runtime answers through it', async () => {
    const property = ['LoadState=loaded', 'ActiveState=active', 'MainPID=9', 'ActiveEnterTimestamp=Sun'].join('\\n');
    fake.systemctl(`printf '${property}\\n'`);
    expect(await found('bypass')).toMatchObject({
      result: 'failed',
      found: expect.stringMatching(
        /^serves clients since Sun, but no runtime answers at .*shim.sock: connect ENOENT/,
      ) as string,
    });
    const stop = await answeringRuntime(fake.node.listen);
    expect(await found('bypass')).toMatchObject({
      result: 'warning',
      found: 'serves clients since Sun: resizes reach containerd unchanged',
    });
    stop();
  });

  test('check state folder fails if other users may write to it or own it', async () => {
    const folder = join(fake.folder, 'state');
    mkdirSync(folder);
    chmodSync(folder, 0o777);
    expect(await found('state folder')).toMatchObject({
      result: 'failed',
      found: expect.stringContaining('mode 777') as string,
    });
    chmodSync(folder, 0o700);
    // The user of this test owns the folder.
    const uid = process.geteuid?.();
    expect(await found('state folder')).toMatchObject(
      uid === 0 ? { result: 'ok' } : { result: 'failed', found: expect.stringContaining(`uid ${uid}`) as string },
    );
  });
});

describe('checks of the configuration', () => {
  beforeEach(() => (fake = new FakeInstallNode()));

  afterEach(() => fake.remove());

  async function found(check: string): Promise<Finding> {
    const all = await diagnose(fake.node);
    return all.find((finding) => finding.check === check)!;
  }

  test('check configuration reads the file that an installation would use, as long as the service has no flags file', async () => {
    fake.put('etc/config.yaml', 'unknownKey: 1\n');
    expect(await found('configuration')).toMatchObject({
      result: 'failed',
      found: expect.stringContaining(`${fake.at('etc/config.yaml')}:1:1: unknownKey: unknown key`) as string,
    });
    fake.put('etc/flags', 'CRI_RESIZE_SHIM_FLAGS=\n');
    expect(await found('configuration')).toMatchObject({ result: 'ok', found: 'no file: the defaults apply' });
  });

  test('check configuration reads the file that the service names', async () => {
    expect(await found('configuration')).toMatchObject({ result: 'ok', found: 'no file: the defaults apply' });
    fake.put('etc/flags', `CRI_RESIZE_SHIM_FLAGS="--config ${fake.at('config.yaml')}"\n`);
    expect(await found('configuration')).toMatchObject({
      result: 'failed',
      found: expect.stringContaining('no such file') as string,
    });
    fake.put('config.yaml', 'intercept: false\n');
    expect(await found('configuration')).toMatchObject({
      result: 'ok',
      found: `${fake.at('config.yaml')}, valid, off by configuration (intercept: false)`,
    });
    fake.put('config.yaml', 'a: 1\nb: 2\nc: 3\nd: 4\n');
    const { result, found: says } = await found('configuration');
    expect(result).toBe('failed');
    expect(says).toMatch(/config\.yaml:1:1: a: unknown key.*; and 1 more$/);
    fake.put('etc/flags', 'CRI_RESIZE_SHIM_FLAGS=--log-level=loud\n');
    expect(await found('configuration')).toMatchObject({
      result: 'failed',
      found: expect.stringContaining(`${fake.at('etc/flags')}: --log-level: "loud" must be`) as string,
    });
  });

  test('check kubelet runtime does not blame the shim if containerd does not answer', async () => {
    expect(await found('kubelet runtime')).toMatchObject({
      result: 'ok',
      found: `kubelet does not use ${fake.node.listen}`,
    });
    fake.put('kubelet/config.yaml', `containerRuntimeEndpoint: unix://${fake.node.listen}\n`);
    expect(await found('kubelet runtime')).toMatchObject({
      result: 'ok',
      found: 'not checked: containerd does not answer either',
    });
  });

  test('check installation warns about two installations', async () => {
    const folders = { package: fake.at('package'), own: fake.at('cri-resize-shim') };
    const looked = (): Promise<Finding> => checkInstallation(fake.folder, folders.package);
    expect(await looked()).toMatchObject({ result: 'ok', found: 'none' });
    fake.put('package/package.json', '{}');
    expect(await looked()).toMatchObject({ result: 'ok', found: `package at ${folders.package}` });
    fake.put('cri-resize-shim/package.json', '{}');
    const both = await looked();
    expect(both.result).toBe('warning');
    expect(both.found).toContain(folders.package);
    expect(both.found).toContain(folders.own);
  });
});

test('a release is compared by the numbers at its start', () => {
  expect(numbersOf('6.1.0-18-amd64')).toEqual([6, 1, 0]);
  expect(numbersOf('1.7.24~ds1')).toEqual([1, 7, 24]);
  expect(numbersOf('unknown')).toEqual([]);
});

test.each([
  ['5.19', '5.19', true],
  ['5.19.0', '5.19', true],
  ['5.4.0-200-generic', '5.19', false],
  ['5.100', '5.19', true],
  ['6', '5.19', true],
  ['6', '6.0.1', false],
  ['20.18.3', '20.19.0', false],
  ['unknown', '1.6', false],
])('the release %s is at least %s: %s', (found, least, expected) => {
  expect(isAtLeast(found, least)).toBe(expected);
});
