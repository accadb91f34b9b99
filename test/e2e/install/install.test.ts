import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { version } from '../../../src/core/config/version.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod } from '../../support/cri/pod.ts';
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
  SETTINGS,
  startKubelet,
  states,
  stopKubelet,
  UNIT,
  UNITS,
} from '../../support/e2e/kubelet-unit.ts';
import { startSystemdNode } from '../../support/e2e/systemd-node.ts';

// On a node where systemd is the first process: npm run node -- --init systemd
// kubelet is a fake. The test observes whether its calls continue while the runtime below it changes.

const COMMAND = '/usr/local/bin/resizectl';
const INSTALLED = '/usr/local/lib/cri-resize-shim/package.json';

let direct: CriClient;
let pod: RunningPod;

beforeAll(async () => {
  ({ direct, pod } = await startSystemdNode(['a', 'b']));
});
afterAll(async () => {
  await pod.remove();
  direct.close();
});

beforeEach(() => startKubelet(`--config=${CONFIG}`));
afterEach(async () => {
  await execa('node', ['dist/resizectl.js', 'uninstall'], { reject: false });
  await stopKubelet();
});

interface Ended {
  readonly text: string;
  readonly code: number | undefined;
}

/** Runs the resizectl of a checkout, or of a folder that contains only the program. */
async function resizectlOf(folder: string, ...args: readonly string[]): Promise<Ended> {
  const program = [join(folder, 'dist/resizectl.js'), ...args];
  const { all, exitCode } = await execa('node', program, { reject: false, all: true });
  return { text: all, code: exitCode };
}
const resizectl = (...args: readonly string[]): Promise<Ended> => resizectlOf('.', ...args);

/** The text of a file, or its digest, because Node itself is large. */
const digest = (path: string): string =>
  path.endsWith('/bin/node') ? createHash('sha1').update(readFileSync(path)).digest('hex') : readFileSync(path, 'utf8');

/** The content of every file that an installation may change. */
function files(): Readonly<Record<string, string>> {
  const found: Record<string, string> = {};
  const look = (path: string): void => {
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return;
    const mode = (stat.mode & 0o7777).toString(8);
    if (stat.isDirectory()) {
      found[path] = mode;
      for (const name of readdirSync(path)) look(join(path, name));
    } else if (stat.isSymbolicLink()) found[path] = `-> ${readlinkSync(path)}`;
    else if (stat.isFile()) found[path] = `${mode} ${stat.uid} ${digest(path)}`;
    else found[path] = `${mode} special`;
  };
  const paths = ['/etc/systemd/system', '/etc/default', dirname(SETTINGS), '/run/cri-resize-shim', COMMAND];
  for (const path of paths) look(path);
  for (const folder of ['/usr/local/lib', '/var/lib/kubelet'])
    for (const name of readdirSync(folder)) if (/^(cri-resize-shim|config\.yaml)/.test(name)) look(join(folder, name));
  return found;
}

const processes = (): readonly string[] => ['a', 'b'].map((name) => pod.read('cgroup.procs', name));
const ran = (text: string): readonly string[] => text.split('\n').filter((line) => line.startsWith('done:'));

describe('install and uninstall', () => {
  test('install: kubelet uses the shim until uninstall, pods keep running, and at most one call of kubelet fails each time', async () => {
    const [before, pids] = [files(), processes()];
    expect(pids.every((pid) => /^\d+$/m.test(pid))).toBe(true);

    const wouldDo = await resizectl('install', '--dry-run');
    expect(wouldDo).toMatchObject({
      code: 0,
      text: expect.stringContaining(`would: set ${OURS} in ${CONFIG}`) as string,
    });
    expect(files()).toEqual(before);

    const installed = await resizectl('install');
    expect(installed, installed.text).toMatchObject({ code: 0 });
    expect(await states()).toEqual(['active', 'active', 'active']);
    expect(readFileSync(CONFIG, 'utf8')).toBe(kubeletConfig.replace(CONTAINERD, OURS));
    expect(readFileSync(`${CONFIG}.before-cri-resize-shim`, 'utf8')).toBe(kubeletConfig);
    await calledThrough(OURS);
    expect(processes()).toEqual(pids);
    expect(failedCalls().length).toBeLessThanOrEqual(1);
    expect((await resizectl('doctor')).text).toMatch(/^kubelet +ok +uses the shim/m);

    const cri = new CriClient(OURS);
    await cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: 96 * MiB });
    cri.close();
    expect([pod.read('memory.max', 'a'), pod.read('memory.max')]).toEqual([String(96 * MiB), String(160 * MiB)]);

    const [there, mainPids] = [
      files(),
      await Promise.all(['kubelet.service', UNITS[0]!].map((unit) => property(unit, 'MainPID'))),
    ];
    const again = await resizectl('install');
    expect(again).toMatchObject({ code: 0 });
    expect(ran(again.text)).toEqual([]);
    expect(files()).toEqual(there);
    expect(await Promise.all(['kubelet.service', UNITS[0]!].map((unit) => property(unit, 'MainPID')))).toEqual(
      mainPids,
    );

    const off = await resizectl('uninstall');
    expect(off, off.text).toMatchObject({ code: 0, text: expect.stringContaining(SETTINGS) as string });
    await calledThrough(CONTAINERD);
    expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);
    expect(processes()).toEqual(pids);
    expect(failedCalls().length).toBeLessThanOrEqual(1);
    expect(pod.read('memory.max', 'a')).toBe(String(96 * MiB));
    for (const path of [SETTINGS, FLAGS]) rmSync(path);
    rmSync(dirname(SETTINGS), { recursive: true });
    expect(files()).toEqual(before);

    const nothing = await resizectl('uninstall');
    expect(nothing).toMatchObject({ code: 0, text: expect.stringContaining('the shim is not installed') as string });
  });

  test('L4: install and uninstall keep the link of a drop-in, and the mode and owner of its target', async () => {
    const place = '/usr/local/lib/cri-resize-shim-runtime.conf';
    const dropIn = `${UNIT}.d/10-runtime.conf`;
    const text = `[Service]\nEnvironment=RUNTIME=--container-runtime-endpoint=${CONTAINERD}\n`;
    writeFileSync(place, text);
    chownSync(place, 12_345, 23_456);
    chmodSync(place, 0o640);
    mkdirSync(dirname(dropIn));
    symlinkSync(place, dropIn);
    await execa('sed', ['-i', 's/^ExecStart=.*/& $RUNTIME/', UNIT]);
    await execa('systemctl', ['daemon-reload']);
    await execa('systemctl', ['restart', 'kubelet.service']);
    await calledThrough(CONTAINERD);
    const rights = (): unknown => {
      const { mode, uid, gid } = lstatSync(place);
      return [readlinkSync(dropIn), mode & 0o7777, uid, gid];
    };
    try {
      for (const [command, endpoint] of [
        ['install', OURS],
        ['uninstall', CONTAINERD],
      ] as const) {
        const ended = await resizectl(command);
        expect(ended, ended.text).toMatchObject({ code: 0 });
        await calledThrough(endpoint);
        expect(readFileSync(place, 'utf8')).toBe(text.replace(`endpoint=${CONTAINERD}`, `endpoint=${endpoint}`));
        expect(rights()).toEqual([place, 0o640, 12_345, 23_456]);
      }
    } finally {
      rmSync(place);
    }
  });

  test('install changes only the drop-in that has the endpoint flag, and uninstall restores it', async () => {
    const dropIn = `${UNIT}.d/10-runtime.conf`;
    mkdirSync(dirname(dropIn));
    const text = `[Service]\n# Environment=OLD=--container-runtime-endpoint=unix:///old.sock\nEnvironment=RUNTIME=--container-runtime-endpoint=${CONTAINERD}\n`;
    writeFileSync(dropIn, text);
    await execa('sed', ['-i', 's/^ExecStart=.*/& $RUNTIME/', UNIT]);
    await execa('systemctl', ['daemon-reload']);
    await execa('systemctl', ['restart', 'kubelet.service']);
    await calledThrough(CONTAINERD);
    const before = files();
    const installed = await resizectl('install');
    expect(installed, installed.text).toMatchObject({ code: 0 });
    expect(readFileSync(dropIn, 'utf8')).toBe(text.replace(`endpoint=${CONTAINERD}`, `endpoint=${OURS}`));
    expect(readFileSync(CONFIG, 'utf8')).toBe(kubeletConfig);
    await calledThrough(OURS);
    const off = await resizectl('uninstall');
    expect(off, off.text).toMatchObject({ code: 0 });
    await calledThrough(CONTAINERD);
    for (const path of [SETTINGS, FLAGS]) rmSync(path);
    rmSync(dirname(SETTINGS), { recursive: true });
    expect(files()).toEqual(before);
  });
});

test('install: a failing upgrade is rolled back and a working one is applied, without a kubelet restart or a failed call', async () => {
  const installed = await resizectl('install');
  expect(installed, installed.text).toMatchObject({ code: 0 });
  await calledThrough(OURS);
  const kubelet = await property('kubelet.service', 'MainPID');
  const failed = failedCalls().length;
  const folder = '/root/newer';
  await execa('cp', ['-a', '/usr/local/lib/cri-resize-shim', folder]);
  await execa('sed', ['-i', `s/"version": "${version}"/"version": "0.1.0"/`, INSTALLED]);
  const before = files();
  const daemon = join(folder, 'dist/cri-resize-shim.js');
  const whole = readFileSync(daemon, 'utf8');
  try {
    writeFileSync(daemon, 'process.exit(1);\n');
    const bad = await resizectlOf(folder, 'install', '--timeout', '20s');
    expect(bad.text).toContain(`upgrade 0.1.0 to ${version}\n`);
    expect(bad.text).toMatch(/^failed: enable and start /m);
    expect(bad.text).not.toContain('NOT rolled back');
    expect(bad.code, bad.text).toBe(3);
    expect(files()).toEqual(before);
    await calledThrough(OURS);

    writeFileSync(daemon, `${whole}\n// newer\n`);
    const good = await resizectlOf(folder, 'install');
    expect(good, good.text).toMatchObject({ code: 0 });
    expect(good.text).toContain(`upgrade done: 0.1.0 to ${version}\nnext: resizectl doctor `);
    expect(good.text).toMatch(/^undo: run resizectl install of 0\.1\.0, or resizectl uninstall removes the shim/m);
    expect(readFileSync('/usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js', 'utf8')).toMatch(/newer\n$/);
    await calledThrough(OURS);
  } finally {
    rmSync(folder, { recursive: true });
  }
  expect(await property('kubelet.service', 'MainPID')).toBe(kubelet);
  expect(failedCalls().length).toBe(failed);
  // As an operator does after deleting the download.
  const { all, exitCode } = await execa('resizectl', ['uninstall'], { reject: false, all: true, cwd: '/' });
  expect(exitCode, all).toBe(0);
  expect(['/usr/local/lib/cri-resize-shim', COMMAND].map((path) => existsSync(path))).toEqual([false, false]);
});

test('a failing upgrade of a failing shim leaves the bypass active, and the fallback restarts the shim', async () => {
  const installed = await resizectl('install');
  expect(installed, installed.text).toMatchObject({ code: 0 });
  await calledThrough(OURS);
  writeFileSync(CONFIG, kubeletConfig);
  await execa('systemctl', ['restart', 'kubelet.service']);
  await calledThrough(CONTAINERD);
  const daemon = '/usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js';
  const whole = readFileSync(daemon, 'utf8');
  writeFileSync(daemon, 'process.exit(1);\n');
  await execa('systemctl', ['restart', UNITS[0]!], { reject: false });
  const bypass = (): Promise<string> => property('cri-resize-shim-bypass.service', 'ActiveState');
  await expect.poll(bypass, { timeout: 60_000, interval: 300 }).toBe('active');
  // The shim of this installation starts, and kubelet does not.
  writeFileSync(REFUSES, OURS);
  const { text, code } = await resizectl('install', '--timeout', '20s');
  expect(text).toMatch(/^done: enable and start /m);
  expect(text).not.toContain('NOT rolled back');
  expect(code, text).toBe(3);
  expect([readFileSync(daemon, 'utf8'), await bypass()]).toEqual(['process.exit(1);\n', 'active']);
  const cri = new CriClient(OURS);
  expect(await cri.version()).toMatchObject({ runtime_name: 'containerd' });
  cri.close();
  // Nothing but the fallback starts it.
  writeFileSync(daemon, whole);
  await expect.poll(() => property(UNITS[0]!, 'ActiveState'), { timeout: 90_000, interval: 300 }).toBe('active');
});

describe('a failing installation', () => {
  test('install: an installation with an unknown configuration key is rejected before any change', async () => {
    mkdirSync(dirname(SETTINGS));
    writeFileSync(SETTINGS, 'unknownKey: 1\n');
    const [before, pid] = [files(), await property('kubelet.service', 'MainPID')];
    const { text, code } = await resizectl('install', '--timeout', '30s');
    expect(text).toMatch(/^configuration +failed +.*config\.yaml:1:1: unknownKey: unknown key/m);
    expect(text).toContain('nothing was changed: a check failed, see above');
    expect(code, text).toBe(2);
    expect(files()).toEqual(before);
    expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);
    // Nothing has restarted it.
    expect(await property('kubelet.service', 'MainPID')).toBe(pid);
    expect(failedCalls()).toEqual([]);
  });

  test('install: an installation is rolled back if kubelet does not start with the endpoint of the shim', async () => {
    writeFileSync(REFUSES, OURS);
    const [before, pids] = [files(), processes()];
    const { text, code } = await resizectl('install', '--timeout', '20s');
    expect(text).toMatch(/^failed: set unix:.* in .*config\.yaml/m);
    expect(text).not.toContain('NOT rolled back');
    expect(code, text).toBe(3);
    expect(files()).toEqual(before);
    expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);
    await calledThrough(CONTAINERD);
    expect(processes()).toEqual(pids);
  });

  test('install: an installation that is interrupted while it waits for kubelet is rolled back', async () => {
    writeFileSync(REFUSES, OURS);
    const before = files();
    const installing = execa('node', ['dist/resizectl.js', 'install'], { reject: false, all: true });
    await expect.poll(() => readFileSync(CONFIG, 'utf8'), { timeout: 60_000, interval: 100 }).toContain(OURS);
    installing.kill('SIGINT');
    const { all, exitCode } = await installing;
    expect(exitCode, all).toBe(3);
    expect(files()).toEqual(before);
    await calledThrough(CONTAINERD);
  });

  test('a concurrent install or uninstall changes nothing, and names the process of the first installation', async () => {
    writeFileSync(REFUSES, OURS);
    const first = execa('node', ['dist/resizectl.js', 'install', '--timeout', '60s'], { reject: false, all: true });
    await expect.poll(() => readFileSync(CONFIG, 'utf8'), { timeout: 60_000, interval: 100 }).toContain(OURS);
    for (const command of ['install', 'uninstall']) {
      const { text, code } = await resizectl(command);
      expect(text).toContain(`nothing was changed: another installation runs (pid ${first.pid}); what to do: wait`);
      expect(code, text).toBe(7);
    }
    rmSync(REFUSES);
    const { all, exitCode } = await first;
    expect(exitCode, all).toBe(0);
    await calledThrough(OURS);
  });

  test.each([
    ['has no configuration file', '"--log-level=debug"', 'the service has no configuration file: '],
    ['reads another file', '"--config /etc/other.yaml"', 'the service reads /etc/other.yaml '],
    [
      'has a flag with another value',
      `"--config ${SETTINGS} --log-level=debug"`,
      `${FLAGS} has --log-level, which takes precedence`,
    ],
  ])('an installation with a configuration is rejected before any change if the service %s', async (_, flags, why) => {
    const [given, other] = ['/run/given.yaml', '/etc/other.yaml'];
    writeFileSync(given, 'logLevel: warn\n');
    writeFileSync(other, '');
    writeFileSync(FLAGS, `CRI_RESIZE_SHIM_FLAGS=${flags}\n`);
    try {
      const before = files();
      const { text, code } = await resizectl('install', '--config', given);
      expect(text).toContain(`resizectl: nothing was changed: ${why}`);
      expect(code, text).toBe(2);
      expect(files()).toEqual(before);
      expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);
    } finally {
      for (const file of [given, other]) rmSync(file);
    }
  });

  test('install: an installation is rejected before any change if the endpoint flag is in several places', async () => {
    const flag = `--container-runtime-endpoint=${CONTAINERD}`;
    await execa('sed', ['-i', `s|^ExecStart=.*|& ${flag} ${flag}|`, UNIT]);
    await execa('systemctl', ['daemon-reload']);
    await execa('systemctl', ['restart', 'kubelet.service']);
    await calledThrough(CONTAINERD);
    const before = files();
    const { text, code } = await resizectl('install');
    expect(text).toContain(
      `nothing was changed: --container-runtime-endpoint is in several places of kubelet.service: ${UNIT}`,
    );
    expect(code).toBe(2);
    expect(files()).toEqual(before);
  });
});
