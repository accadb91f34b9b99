import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Busctl } from '../../../src/cgroups/busctl.ts';
import { CGROUP_ROOT } from '../../../src/cgroups/file.ts';
import { DriverCgroupTree } from '../../../src/cgroups/systemd-tree.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient, type Resources } from '../../support/cri/client.ts';
import { type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { isSystemdNode, setProperties, unitOf } from '../../support/cri/pod-cgroup.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { Tenant } from '../../support/e2e/tenant.ts';
import { refusal } from '../../support/resize-api/client.ts';

// On a node where systemd is the first process and the runtime creates cgroups through it:
// npm run node -- --init systemd

const SLEEP = ['sleep', '1000000'];
const NO_LIMIT = String(2n ** 64n - 1n);

let shim: ShimProcess;
let cri: CriClient;
const pods: RunningPod[] = [];
const tenants: Tenant[] = [];

async function start(): Promise<void> {
  shim = await ShimProcess.start({ args: ['--log-level', 'debug'] });
}

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await start();
  cri = new CriClient(shim.address);
});

afterEach(async () => {
  for (const tenant of tenants.splice(0)) await tenant.end();
  for (const pod of pods.splice(0)) await pod.remove();
});

afterAll(async () => {
  cri.close();
  expect(await shim.stop()).toBe(0);
});

const limits = (mebibytes: number, quota: number, shares = 102): Resources => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: quota,
  cpu_period: 100_000,
  cpu_shares: shares,
});

async function makePod(spec: Partial<PodSpec> = {}): Promise<RunningPod> {
  const pod = await runPod(cri, {
    name: 'web',
    containers: [
      { name: 'a', command: SLEEP, resources: limits(64, 10_000) },
      { name: 'b', command: SLEEP, resources: limits(128, 20_000) },
    ],
    ...spec,
  });
  pods.push(pod);
  return pod;
}

const PROPERTIES = ['MemoryMax', 'CPUQuotaPerSecUSec', 'CPUWeight'] as const;

/** Reads properties of a unit from systemd, without the shim. */
async function unit(pod: RunningPod, ...names: string[]): Promise<Record<string, string>> {
  const asked = names.length === 0 ? [...PROPERTIES] : names;
  const object = await execa('busctl', [...manager('GetUnit'), 's', unitOf(pod.cgroup)]);
  const path = /"(.*)"/.exec(object.stdout)?.[1] ?? '';
  const read = ['get-property', 'org.freedesktop.systemd1', path, 'org.freedesktop.systemd1.Slice', ...asked];
  const values = (await execa('busctl', read)).stdout.split('\n').map((line) => line.split(' ')[1] ?? '');
  return Object.fromEntries(asked.map((name, at) => [name, values[at] ?? '']));
}

const manager = (method: string): string[] => [
  ...['call', 'org.freedesktop.systemd1', '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager'],
  method,
];

const files = (pod: RunningPod): Record<string, string> => ({
  memory: pod.read('memory.max'),
  cpu: pod.read('cpu.max'),
  weight: pod.read('cpu.weight'),
});

/** Sets another property of the pod's unit, as another program would. systemd then writes all properties again. */
const setAnother = (pod: RunningPod, value: number): void =>
  setProperties(unitOf(pod.cgroup), [['TasksMax', 't', String(value)]]);

/** Waits also for the writes that systemd makes after its answer. */
async function settled(pod: RunningPod): Promise<void> {
  await unit(pod);
}

describe('limits of a pod with the systemd driver', () => {
  test('the shim uses the cgroup driver of the backend', async () => {
    expect(await cri.call('RuntimeConfig', {})).toMatchObject({ linux: { cgroup_driver: 0 } });
  });

  test("systemd: pod limits are set on the pod's unit and appear in its files", async () => {
    const pod = await makePod();
    await cri.updatePod(pod.sandboxId, limits(256, 40_000, 512));
    expect(files(pod)).toEqual({ memory: String(256 * MiB), cpu: '40000 100000', weight: '20' });
    expect(await unit(pod)).toEqual({
      MemoryMax: String(256 * MiB),
      CPUQuotaPerSecUSec: '400000',
      CPUWeight: '20',
    });
    await cri.updatePod(pod.sandboxId, { ...limits(-1, -1), memory_limit_in_bytes: -1 });
    expect(files(pod)).toMatchObject({ memory: 'max', cpu: 'max 100000' });
    expect(await unit(pod)).toMatchObject({ MemoryMax: NO_LIMIT, CPUQuotaPerSecUSec: NO_LIMIT });
  });

  test('systemd: pod limits follow the containers, also on the unit', async () => {
    const pod = await makePod();
    await cri.updateContainer(pod.id('a'), limits(128, 20_000));
    expect(files(pod)).toMatchObject({ memory: String(256 * MiB), cpu: '40000 100000' });
    expect(await unit(pod)).toMatchObject({ MemoryMax: String(256 * MiB), CPUQuotaPerSecUSec: '400000' });
    expect(pod.read('memory.max', 'a')).toBe(String(128 * MiB));
    await cri.updateContainer(pod.id('a'), limits(64, 10_000));
    expect(files(pod)).toMatchObject({ memory: String(192 * MiB), cpu: '30000 100000' });
    expect(await unit(pod)).toMatchObject({ MemoryMax: String(192 * MiB), CPUQuotaPerSecUSec: '300000' });
  });

  test('systemd: pod limits survive a daemon-reload and a property that another program sets', async () => {
    const pod = await makePod();
    await cri.updatePod(pod.sandboxId, limits(256, 40_000));
    await execa('systemctl', ['daemon-reload']);
    setAnother(pod, 1000);
    await settled(pod);
    expect(files(pod)).toMatchObject({ memory: String(256 * MiB), cpu: '40000 100000' });
    await cri.updatePod(pod.sandboxId, limits(320, 50_000));
    await execa('systemctl', ['daemon-reload']);
    expect(files(pod)).toMatchObject({ memory: String(320 * MiB), cpu: '50000 100000' });
    expect(await unit(pod)).toMatchObject({ MemoryMax: String(320 * MiB), CPUQuotaPerSecUSec: '500000' });
  });

  test('systemd: with --cgroup-driver=cgroupfs, pod limits are only in the files and do not survive a change of the unit', async () => {
    const other = await ShimProcess.start({
      listen: 'unix:///run/cri-resize-shim/files.sock',
      args: ['--cgroup-driver', 'cgroupfs', '--state-folder', '/var/lib/cri-resize-shim-files'],
    });
    const client = new CriClient(other.address);
    try {
      const pod = await makePod();
      await client.updatePod(pod.sandboxId, limits(256, 40_000));
      expect(files(pod)).toMatchObject({ memory: String(256 * MiB), cpu: '40000 100000' });
      expect(await unit(pod)).toMatchObject({ MemoryMax: String(192 * MiB) });
      setAnother(pod, 1000);
      await settled(pod);
      expect(files(pod)).toMatchObject({ memory: String(192 * MiB), cpu: '30000 100000' });
    } finally {
      client.close();
      expect(await other.stop()).toBe(0);
    }
  });

  test('systemd: a quota with a fraction of a percent is exact until systemd rounds it up, and a new request restores it', async () => {
    const pod = await makePod();
    await cri.updatePod(pod.sandboxId, { ...limits(256, 34_560) });
    expect(pod.read('cpu.max')).toBe('34560 100000');
    expect(await unit(pod)).toMatchObject({ CPUQuotaPerSecUSec: '350000' });
    await execa('systemctl', ['daemon-reload']);
    setAnother(pod, 1000);
    await settled(pod);
    expect(pod.read('cpu.max')).toBe('35000 100000');
    // The same request restores the exact quota.
    await cri.updatePod(pod.sandboxId, { ...limits(256, 34_560) });
    expect(pod.read('cpu.max')).toBe('34560 100000');
  });

  test('the pod quota follows a container quota that systemd has rounded', async () => {
    const pod = await makePod();
    await cri.updateContainer(pod.id('a'), { ...limits(64, 12_340) });
    expect(pod.read('cpu.max')).toBe('32340 100000');
    setProperties(unitOf(pod.containerCgroup('a')), [['TasksMax', 't', '1000']]);
    await settled(pod);
    expect(pod.read('cpu.max', 'a')).toBe('13000 100000');
    await cri.updateContainer(pod.id('b'), { ...limits(128, 25_000) });
    // The sum uses the quotas that the kernel has now.
    expect(pod.read('cpu.max')).toBe('38000 100000');
    expect(pod.read('cpu.max', 'b')).toBe('25000 100000');
  });

  test('A11: an update without limits restores the exact quota of a container after systemd has rounded it', async () => {
    const pod = await makePod();
    const direct = new CriClient('unix:///run/containerd/containerd.sock');
    const stored = async (): Promise<unknown> =>
      (await direct.containerStatus(pod.id('a'))).resources?.linux?.cpu_quota;
    await cri.updateContainer(pod.id('a'), { ...limits(64, 12_340) });
    setProperties(unitOf(pod.containerCgroup('a')), [['TasksMax', 't', '1000']]);
    await settled(pod);
    expect([pod.read('cpu.max', 'a'), await stored()]).toEqual(['13000 100000', 12_340]);
    // A cpuset has the same effect, but this kernel has no cpuset controller.
    await cri.updateContainer(pod.id('a'), { unified: { 'memory.low': String(4 * MiB) } });
    expect([pod.read('cpu.max', 'a'), await stored()]).toEqual(['12340 100000', 12_340]);
    expect(pod.read('memory.low', 'a')).toBe(String(4 * MiB));
    direct.close();
  });

  test('systemd: a quota that systemd has rounded up counts as the requested one', async () => {
    const pod = await makePod();
    const cgroup = pod.cgroup.slice(CGROUP_ROOT.length);
    const asked = { quota: microseconds(34_560), period: microseconds(100_000) };
    const tree = driverTree();
    await tree.write(cgroup, { file: 'cpu.max', value: asked });
    setAnother(pod, 1000);
    await settled(pod);
    const { cpuMax } = await tree.readLimits(cgroup);
    expect(cpuMax).toEqual({ quota: 35_000, period: 100_000 });
    expect(tree.holdsCpu(cgroup, asked, cpuMax!)).toBe(true);
  });

  test('a unified key is set as a unit property if systemd has one, and otherwise in its file', async () => {
    const pod = await makePod();
    const unified = { 'memory.high': String(100 * MiB), 'memory.oom.group': '1', 'pids.max': '500' };
    await cri.updatePod(pod.sandboxId, { unified });
    expect(await unit(pod, 'MemoryHigh', 'TasksMax')).toEqual({ MemoryHigh: String(100 * MiB), TasksMax: '500' });
    expect([pod.read('memory.high'), pod.read('memory.oom.group'), pod.read('pids.max')]).toEqual([
      ...[String(100 * MiB), '1', '500'],
    ]);
  });
});

describe('a failing resize with the systemd driver', () => {
  test('systemd: a resize that the runtime rejects is rolled back, also on the unit', async () => {
    const pod = await makePod();
    const before = [files(pod), await unit(pod)];
    const update = cri.updateContainer(pod.id('a'), { ...limits(128, 20_000), cpuset_cpus: '999' });
    // The error of the runtime.
    await expect(update).rejects.toMatchObject({ code: 2 });
    expect([files(pod), await unit(pod)]).toEqual(before);
    expect(pod.read('memory.max', 'a')).toBe(String(64 * MiB));
  });

  test('systemd: a resize without D-Bus is rejected with a reason and changes nothing, and succeeds once D-Bus is back', async () => {
    const pod = await makePod();
    const before = [files(pod), await unit(pod)];
    // Both are stopped, because a socket would start the service again.
    await execa('systemctl', ['stop', 'dbus.socket', 'dbus.service']);
    try {
      const error = await refusal(cri.updatePod(pod.sandboxId, limits(256, 40_000)));
      expect(error).toMatchObject({ code: 14, reason: 'SYSTEMD_UNAVAILABLE' });
      expect(files(pod)).toEqual(before[0]);
    } finally {
      await execa('systemctl', ['start', 'dbus.socket', 'dbus.service']);
    }
    expect(await unit(pod)).toEqual(before[1]);
    await cri.updatePod(pod.sandboxId, limits(256, 40_000));
    expect(files(pod)).toMatchObject({ memory: String(256 * MiB), cpu: '40000 100000' });
  });

  test('systemd: a write to a cgroup without a unit is rejected with a reason and changes nothing', async () => {
    // Created next to another pod, because systemd enables the memory controller only where a unit needs it.
    const sibling = await makePod();
    const cgroup = join(dirname(sibling.cgroup), 'kubepods-burstable-podnone.slice').slice(CGROUP_ROOT.length);
    mkdirSync(join(CGROUP_ROOT, cgroup));
    try {
      const write = driverTree().write(cgroup, { file: 'memory.max', value: bytes(256 * MiB) });
      await expect(write).rejects.toMatchObject({ reason: 'UNIT_UNAVAILABLE' });
      expect(readFileSync(join(CGROUP_ROOT, cgroup, 'memory.max'), 'utf8')).toBe('max\n');
      const { stdout } = await execa('systemctl', ['show', '--property=MemoryMax', unitOf(cgroup)]);
      expect(stdout).toBe('MemoryMax=infinity');
    } finally {
      rmdirSync(join(CGROUP_ROOT, cgroup));
    }
  });
});

describe('the shim in its own units', () => {
  const UNITS = readdirSync('systemd');
  const LIBRARY = '/usr/local/lib/cri-resize-shim';

  beforeAll(async () => {
    await execa('mkdir', ['-p', LIBRARY]);
    await execa('mount', ['--bind', process.cwd(), LIBRARY]);
    // The checkout's Node, through the bind mount: the unit does not see a checkout in /tmp (PrivateTmp).
    const node = process.execPath.replace(`${process.cwd()}/`, `${LIBRARY}/`);
    for (const name of UNITS) {
      const unitFile = readFileSync(join('systemd', name), 'utf8');
      writeFileSync(join('/etc/systemd/system', name), unitFile.replaceAll('/usr/bin/node', node));
    }
    await execa('systemctl', ['daemon-reload']);
  });

  afterAll(async () => {
    await execa('systemctl', ['stop', ...UNITS.filter((name) => !name.includes('@'))]);
    // Removes the units, because other tests on this node install their own.
    for (const name of UNITS) rmSync(join('/etc/systemd/system', name));
    await execa('systemctl', ['daemon-reload']);
    await execa('umount', [LIBRARY]);
    await execa('rmdir', [LIBRARY]);
    await start();
  });

  test('the hardened shim sets limits of pods in files and units', async () => {
    const pod = await makePod();
    expect(await shim.stop()).toBe(0);
    // Returns when the shim has notified systemd that it serves.
    await execa('systemctl', ['start', 'cri-resize-shim.service']);
    await cri.ready(120_000);
    await cri.updatePod(pod.sandboxId, limits(256, 40_000));
    expect(files(pod)).toMatchObject({ memory: String(256 * MiB), cpu: '40000 100000' });
    expect(await unit(pod)).toMatchObject({ MemoryMax: String(256 * MiB), CPUQuotaPerSecUSec: '400000' });
  });
});

describe('memory that is reclaimed for a lower limit', () => {
  // A sparse file in a folder of the host: its pages are page cache, and it takes no space there.
  const big = join(process.env['NODE_OUT'] ?? '', 'big-under-systemd');
  beforeAll(() => {
    closeSync(openSync(big, 'w'));
    truncateSync(big, 200 * MiB);
  });
  afterAll(() => rmSync(big));

  test('systemd: a decrease restores memory.high and kills nothing while others set properties and systemd reloads', async () => {
    const pod = await makePod({
      containers: [{ name: 'a', command: SLEEP, resources: limits(256, 100_000) }],
    });
    const tenant = await Tenant.in(pod.containerCgroup('a'));
    tenants.push(tenant);
    await tenant.run('hold', 20 * MiB);
    await tenant.run('read', big);
    expect(Number(pod.read('memory.current', 'a'))).toBeGreaterThan(200 * MiB);
    const scope = unitOf(pod.containerCgroup('a'));
    const over = new AbortController();
    const others = (async () => {
      for (let tasks = 1000; !over.signal.aborted; tasks += 1) {
        setProperties(scope, [['TasksMax', 't', String(tasks)]]);
        setAnother(pod, tasks);
        await execa('systemctl', ['daemon-reload']);
      }
    })();
    try {
      await cri.updateContainer(pod.id('a'), limits(96, 100_000));
    } finally {
      over.abort();
      await others;
    }
    expect([pod.read('memory.max', 'a'), pod.read('memory.max')]).toEqual([String(96 * MiB), String(96 * MiB)]);
    expect([pod.read('memory.high', 'a'), pod.read('memory.high')]).toEqual(['max', 'max']);
    expect(await unit(pod)).toMatchObject({ MemoryMax: String(96 * MiB) });
    expect(tenant.isAlive).toBe(true);
    expect(pod.oomKills()).toBe(0);
  });
});

const driverTree = (): DriverCgroupTree =>
  new DriverCgroupTree({ driver: () => Promise.resolve('systemd'), systemd: new Busctl() });
