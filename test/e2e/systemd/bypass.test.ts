import { existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { markedHigh } from '../../../src/cgroups/memory-high.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encodeRecord } from '../../../src/sandbox/journal/record.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod } from '../../support/cri/pod.ts';
import {
  CONFIG,
  CONTAINERD,
  calledThrough,
  failedCalls,
  OURS,
  property,
  SETTINGS,
  startKubelet,
  stopKubelet,
} from '../../support/e2e/kubelet-unit.ts';
import { faults, invalidFlag, PROGRAM, unreadableState } from '../../support/e2e/shim-faults.ts';
import { callingThroughout, callOnNewConnection, isShim, rejected } from '../../support/e2e/socket-calls.ts';
import { startSystemdNode } from '../../support/e2e/systemd-node.ts';

/**
 * The shim fails in every way that its units know of, and clients reach containerd through the same socket, without the
 * shim. When it is back, they use it again, and no call is lost then. kubelet is a fake.
 */

// On a node where systemd is the first process: npm run node -- --init systemd

const SERVICE = 'cri-resize-shim.service';
const BYPASS = 'cri-resize-shim-bypass.service';
const FALLBACK = 'cri-resize-shim-fallback.service';
const TAKEOVER = 'cri-resize-shim-takeover.service';
const FAILURES = '/run/cri-resize-shim-fallback/failures';
/** The time within which docs/bypass.md promises the bypass. */
const WITHIN_MS = 10_000;
/** Each look starts a systemctl, which takes systemd some time. */
const LONG = { timeout: 60_000, interval: 300 };

let direct: CriClient;
let pod: RunningPod;

beforeAll(async () => {
  ({ direct, pod } = await startSystemdNode(['a']));
});
afterAll(async () => {
  await resizectl('uninstall');
  await stopKubelet();
  await pod.remove();
  direct.close();
});

// A test that has failed may leave a bypass that serves.
beforeEach(async () => {
  if (!existsSync(PROGRAM) || (await active(SERVICE)) === 'active') return;
  await systemctl('restart', SERVICE);
  await takenOver();
});
afterEach(async ({ task }) => {
  if (task.result?.state !== 'fail') return;
  const units = ['service', 'socket'].map((kind) => `--unit=cri-resize-shim*.${kind}`);
  const { stdout } = await execa('journalctl', ['--no-pager', '--output=short-monotonic', '--lines=120', ...units]);
  process.stderr.write(`${stdout}\n`);
});

const resizectl = (...args: readonly string[]) =>
  execa('node', ['dist/resizectl.js', ...args], { reject: false, all: true });
const active = (unit: string): Promise<string> => property(unit, 'ActiveState');
const allActive = async (...units: readonly string[]): Promise<string[]> =>
  (await systemctl('show', '--property=ActiveState', '--value', ...units)).stdout.split('\n').filter(Boolean);
const systemctl = (...args: readonly string[]) => execa('systemctl', args, { reject: false, all: true });

/** Calls the function while the shim does not start and the bypass serves. */
async function whileFailing(work: () => Promise<void>, fault = invalidFlag): Promise<void> {
  rmSync(FAILURES, { force: true });
  fault.begin();
  try {
    await systemctl('restart', '--no-block', SERVICE);
    await expect.poll(() => active(BYPASS), LONG).toBe('active');
    await work();
  } finally {
    fault.end();
  }
}

/** Runs a call that takes some seconds. */
const slowCall = (client: CriClient, seconds: number): Promise<unknown> =>
  client.call('ExecSync', { container_id: pod.id('a'), cmd: ['sleep', String(seconds)], timeout: 60 });

const takenOver = async (): Promise<void> => {
  await expect.poll(() => allActive(SERVICE, BYPASS, FALLBACK), LONG).toEqual(['active', 'inactive', 'inactive']);
};

test('install adds a bypass that is inactive while the shim serves', async () => {
  await startKubelet(`--config=${CONFIG}`);
  // Follows the advice of doctor on a node without the shim without changes.
  expect((await resizectl('doctor')).all).toContain(
    'run resizectl install: it starts the shim, and then sets the endpoint',
  );
  const { all, exitCode } = await resizectl('install');
  expect(exitCode, all).toBe(0);
  await calledThrough(OURS);
  await takenOver();
  expect((await resizectl('doctor')).all).toMatch(/^bypass +ok +ready to serve if the shim fails/m);
});

test('KEP-1287: a memory.high that a killed shim has lowered is restored while the bypass serves', async () => {
  const folders = [pod.cgroup, pod.containerCgroup('a')];
  const highs = (): string[] => [pod.read('memory.high'), pod.read('memory.high', 'a')];
  const lowered = markedHigh(bytes(40 * MiB));
  const holds = folders.map((folder) => ({ cgroup: folder.replace('/sys/fs/cgroup', ''), memoryHigh: 'max' as const }));
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  const record = encodeRecord({ podUid: pod.uid, sandboxId: pod.sandboxId, holds, volumes: new Map() }, boot);
  await whileFailing(async () => {
    for (const folder of folders) writeFileSync(join(folder, 'memory.high'), String(lowered));
    expect(highs()).toEqual([String(lowered), String(lowered)]);
    writeFileSync(`/var/lib/cri-resize-shim/${pod.uid}.json`, record);
    // The next start also fails, and runs the same cleanup as the end of a shim.
    await systemctl('start', SERVICE);
    await expect.poll(highs, LONG).toEqual(['max', 'max']);
  });
  await takenOver();
});

describe.each(faults)('$title', ({ begin, end }) => {
  test('upgrade: clients of a failing shim reach containerd within 10 s, and the shim takes over again without a lost call', async () => {
    rmSync(FAILURES, { force: true });
    const kubelet = await property('kubelet.service', 'MainPID');
    begin();
    try {
      const failed = failedCalls().length;
      await systemctl('restart', '--no-block', SERVICE);
      // Waits until the previous process is no longer active.
      await expect.poll(() => active(SERVICE), LONG).not.toBe('active');
      expect(await callOnNewConnection()).toBeLessThan(WITHIN_MS);
      expect(await isShim()).toBe(false);
      expect(await active(BYPASS)).toBe('active');
      await calledThrough(OURS);
      expect(failedCalls().length).toBe(failed);
      const { stdout } = await execa('stat', ['-c', '%a %U %G', OURS.replace('unix://', '')]);
      expect(stdout).toBe('660 root root');
    } finally {
      end();
    }
    const failed = failedCalls().length;
    const results = await callingThroughout(async () => {
      // Only its time limit ends a start that hangs.
      await systemctl('kill', '--signal=SIGKILL', SERVICE);
      await takenOver();
    });
    expect(rejected(results)).toEqual([]);
    expect(await isShim()).toBe(true);
    await calledThrough(OURS);
    expect(failedCalls().length).toBe(failed);
    expect(await property('kubelet.service', 'MainPID')).toBe(kubelet);
  });
});

test('upgrade: a shim that crashes repeatedly after it was ready is bypassed, and takes over once it is repaired', async () => {
  rmSync(FAILURES, { force: true });
  const failures = (): number => (existsSync(FAILURES) ? Number(readFileSync(FAILURES, 'utf8')) : 0);
  const whole = readFileSync(PROGRAM, 'utf8');
  const order = '/run/abort';
  // Each order stops one shim and is removed, so that the next shim continues.
  const obey = `{ try { process.getBuiltinModule('node:fs').unlinkSync('${order}'); } catch { return; } process.abort(); }`;
  writeFileSync(PROGRAM, `${whole}\nsetInterval(() => ${obey}, 20);\n`);
  try {
    await systemctl('restart', SERVICE);
    for (const count of [1, 2, 3]) {
      await takenOver();
      writeFileSync(order, '');
      await expect.poll(failures, LONG).toBe(count);
    }
    await expect.poll(() => active(BYPASS), LONG).toBe('active');
    expect(failures()).toBe(3);
    await calledThrough(OURS);
  } finally {
    writeFileSync(PROGRAM, whole);
    rmSync(order, { force: true });
  }
  await takenOver();
});

test('upgrade: a shim that fails again during its takeover leaves the bypass active, which cuts off no call', async () => {
  expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
  const bypass = await property(BYPASS, 'MainPID');
  const one = new CriClient(OURS);
  await one.version();
  const begun = slowCall(one, 20);
  const whole = readFileSync(PROGRAM, 'utf8');
  // From the third failure on, the fallback does not wait.
  writeFileSync(FAILURES, '5\n');
  const order = '/run/abort';
  const ordered = `process.getBuiltinModule('node:fs').existsSync('${order}')`;
  writeFileSync(PROGRAM, `${whole}\nsetInterval(() => ${ordered} && process.abort(), 20);\n`);
  try {
    await systemctl('disable', BYPASS);
    await systemctl('start', SERVICE);
    await expect.poll(() => active(TAKEOVER), LONG).toBe('activating');
    writeFileSync(order, '');
    await expect.poll(() => active(TAKEOVER), LONG).toBe('failed');
    // The takeover detected the failure itself, or the fallback was faster and stopped it by SIGTERM.
    expect(['3', '15']).toContain(await property(TAKEOVER, 'ExecMainStatus'));
  } finally {
    writeFileSync(PROGRAM, whole);
    rmSync(order, { force: true });
  }
  expect(await callOnNewConnection()).toBeLessThan(WITHIN_MS);
  expect([await active(BYPASS), await property(BYPASS, 'MainPID')]).toEqual(['active', bypass]);
  await begun;
  one.close();
  await systemctl('start', SERVICE);
  await takenOver();
});

test('a shim with a hanging thread ends when it is stopped, and the bypass serves', async () => {
  const whole = readFileSync(PROGRAM, 'utf8');
  const pipe = '/run/hangs';
  await execa('mkfifo', [pipe]);
  // The thread waits for a writer. An fsync of a disk that hangs cannot be killed: it would outlast the test.
  writeFileSync(PROGRAM, `${whole}\nvoid process.getBuiltinModule('node:fs').promises.open('${pipe}');\n`);
  try {
    await systemctl('restart', SERVICE);
  } finally {
    writeFileSync(PROGRAM, whole);
  }
  const since = Date.now();
  await systemctl('stop', SERVICE);
  expect(Date.now() - since).toBeLessThan(WITHIN_MS);
  expect([await active(SERVICE), await property(SERVICE, 'Result')]).toEqual(['inactive', 'success']);
  await expect.poll(() => active(BYPASS), LONG).toBe('active');
  expect(await isShim()).toBe(false);
  rmSync(pipe);
  await systemctl('start', SERVICE);
  await takenOver();
});

test('M3: a shim that does not start is started again after 5 s, 10 s and 20 s while the bypass serves', async () => {
  await whileFailing(async () => {
    const starts = [Number(await property(BYPASS, 'ActiveEnterTimestampMonotonic')) / 1e6];
    const next = async (): Promise<void> => {
      const time = Number(await property(SERVICE, 'InactiveExitTimestampMonotonic')) / 1e6;
      if (time > starts.at(-1)!) starts.push(time);
    };
    await expect.poll(() => next().then(() => starts.length), { timeout: 90_000, interval: 200 }).toBe(4);
    for (const [index, pause] of [5, 10, 20].entries()) {
      const waited = starts[index + 1]! - starts[index]!;
      expect(waited).toBeGreaterThan(pause - 0.5);
      // Includes the failing start: seconds on a busy machine. The next pause would be twice as long.
      expect(waited).toBeLessThan(2 * pause + 2);
    }
    expect(await active(BYPASS)).toBe('active');
  });
  await systemctl('start', SERVICE);
  await takenOver();
});

test('upgrade: the bypass connects to the containerd socket that the shim has used last', async () => {
  const link = '/run/containerd/other.sock';
  symlinkSync('containerd.sock', link);
  const before = readFileSync(SETTINGS, 'utf8');
  const target = async (): Promise<string> =>
    readFileSync(`/proc/${await property(BYPASS, 'MainPID')}/cmdline`, 'utf8')
      .split('\0')
      .at(-2)!;
  try {
    writeFileSync(SETTINGS, `${before}\ncontainerRuntimeEndpoint: unix://${link}\n`);
    await systemctl('restart', SERVICE);
    // The next shim does not start, and does not know the socket.
    writeFileSync(SETTINGS, before);
    invalidFlag.begin();
    await systemctl('restart', '--no-block', SERVICE);
    await expect.poll(() => active(BYPASS), LONG).toBe('active');
    await expect.poll(target, LONG).toBe(link);
    expect(await callOnNewConnection()).toBeLessThan(WITHIN_MS);
  } finally {
    invalidFlag.end();
    writeFileSync(SETTINGS, before);
  }
  await systemctl('start', SERVICE);
  await takenOver();
  rmSync(link);
  await systemctl('stop', SERVICE);
  await expect.poll(() => active(BYPASS), LONG).toBe('active');
  await expect.poll(target, LONG).toBe('/run/containerd/containerd.sock');
  // The file is truncated by a full disk, or empty.
  for (const text of ['CRI_RESIZE_SHIM_BYPASS_TO="/run/contai', 'CRI_RESIZE_SHIM_BYPASS_TO=\n', '']) {
    writeFileSync('/var/lib/cri-resize-shim-bypass/target', text);
    await systemctl('restart', BYPASS);
    await expect.poll(target, LONG).toBe('/run/containerd/containerd.sock');
    expect(await callOnNewConnection()).toBeLessThan(WITHIN_MS);
  }
  await systemctl('start', SERVICE);
  await takenOver();
});

test('a takeover that is killed together with its last command starts again, and loses no call', async () => {
  expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
  const one = new CriClient(OURS);
  await one.version();
  const begun = slowCall(one, 8);
  await systemctl('disable', BYPASS);
  const results = await callingThroughout(async () => {
    await systemctl('start', SERVICE);
    await expect.poll(() => active(TAKEOVER), LONG).toBe('activating');
    for (const pause of [40, 0]) {
      await systemctl('kill', '--signal=SIGKILL', TAKEOVER);
      await delay(pause);
    }
    await begun;
    one.close();
    await takenOver();
  });
  expect(rejected(results)).toEqual([]);
  expect(await isShim()).toBe(true);
});

test('a shim that is killed once starts again and answers calls', async () => {
  rmSync(FAILURES, { force: true });
  const pid = Number(await property(SERVICE, 'MainPID'));
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => property(SERVICE, 'MainPID'), LONG).not.toMatch(new RegExp(`^(0|${pid})$`));
  expect(await callOnNewConnection()).toBeLessThan(WITHIN_MS);
  await takenOver();
  expect(await property(BYPASS, 'ActiveEnterTimestampMonotonic')).toMatch(/^\d*$/);
  expect(await isShim()).toBe(true);
});

describe('resizectl bypass', () => {
  test('upgrade: resizectl bypass on and off lose no call, including one that takes seconds', async () => {
    const results = await callingThroughout(async () => {
      const one = new CriClient(OURS);
      const begun = slowCall(one, 4);
      const on = await resizectl('bypass', 'on');
      expect(on.exitCode, on.all).toBe(0);
      expect([await active(SERVICE), await active(BYPASS), await isShim()]).toEqual(['inactive', 'active', false]);
      expect((await resizectl('doctor')).all).toMatch(/^bypass +warning +serves clients since /m);
      await begun;
      const other = slowCall(one, 4);
      await delay(500);
      const off = await resizectl('bypass', 'off');
      expect(off.exitCode, off.all).toBe(0);
      expect([await active(SERVICE), await active(BYPASS), await isShim()]).toEqual(['active', 'inactive', true]);
      await other;
      one.close();
    });
    expect(rejected(results)).toEqual([]);
    expect((await resizectl('doctor')).all).toMatch(/^bypass +ok +ready to serve if the shim fails/m);
  });

  test('upgrade: a bypass that was switched on by hand stays on after a reboot, and an installation does not end it', async () => {
    expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
    const sockets = ['cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];
    await systemctl('stop', SERVICE, ...sockets);
    expect(await active(BYPASS)).toBe('inactive');
    // Starts the units as the next boot does.
    await systemctl('start', ...sockets, SERVICE);
    await expect.poll(() => active(BYPASS), LONG).toBe('active');
    expect([await active(SERVICE), await isShim()]).toEqual(['inactive', false]);
    expect((await resizectl('doctor')).all).toMatch(/^bypass +warning +serves clients since .*, switched on by hand/m);
    const refused = await resizectl('install');
    expect([refused.exitCode, refused.all]).toEqual([2, expect.stringContaining('run resizectl bypass off first')]);
    const off = await resizectl('bypass', 'off');
    expect(off.exitCode, off.all).toBe(0);
    await takenOver();
    expect(existsSync('/etc/systemd/system/cri-resize-shim.socket.wants/cri-resize-shim-bypass.service')).toBe(false);
    expect(await property('cri-resize-shim.socket', 'UnitFileState')).toBe('enabled');
  });

  test('resizectl bypass on does not change the shim if the socket proxy cannot be executed', async () => {
    const pid = await property(SERVICE, 'MainPID');
    await execa('mount', ['--bind', '/dev/null', '/usr/lib/systemd/systemd-socket-proxyd']);
    try {
      const on = await resizectl('bypass', 'on');
      expect(on.exitCode, on.all).toBe(1);
    } finally {
      await execa('umount', ['/usr/lib/systemd/systemd-socket-proxyd']);
    }
    // The stop may arrive during an attempt or between two.
    expect(['failed', 'inactive']).toContain(await active(BYPASS));
    expect([await property(SERVICE, 'MainPID'), await isShim()]).toEqual([pid, true]);
    expect(existsSync('/etc/systemd/system/cri-resize-shim.socket.wants/cri-resize-shim-bypass.service')).toBe(false);
  });

  test('resizectl bypass on returns to the shim if the bypass reaches no runtime', async () => {
    const target = '/var/lib/cri-resize-shim-bypass/target';
    const before = readFileSync(target, 'utf8');
    writeFileSync(target, 'CRI_RESIZE_SHIM_BYPASS_TO="/run/nowhere.sock"\n');
    try {
      const on = await resizectl('bypass', 'on');
      expect(on.exitCode, on.all).toBe(3);
      expect(on.all).toMatch(/^bypass off, as before: through it, no runtime answers at .*cri-resize-shim\.sock/m);
      await takenOver();
      expect([await isShim(), await callOnNewConnection()]).toEqual([true, expect.any(Number)]);
      await calledThrough(OURS);
      // The start has written the socket of containerd again.
      expect(readFileSync(target, 'utf8')).toBe(before);
      writeFileSync(target, 'CRI_RESIZE_SHIM_BYPASS_TO="/run/nowhere.sock"\n');
      await systemctl('stop', SERVICE);
      await expect.poll(() => active(BYPASS), LONG).toBe('active');
      const doctor = await resizectl('doctor');
      expect(doctor.all).toMatch(/^bypass +failed +serves clients since .*, but no runtime answers at /m);
      expect(doctor.exitCode).toBe(2);
    } finally {
      writeFileSync(target, before);
      await systemctl('start', SERVICE);
    }
    await takenOver();
  });

  test('upgrade: a bypass that was switched on by hand stays on for a failing shim, which is not started again', async () => {
    await whileFailing(async () => {
      expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
    });
    await expect.poll(() => active(FALLBACK), LONG).toBe('inactive');
    expect([await active(SERVICE), await active(BYPASS)]).toEqual([expect.not.stringMatching(/^activ/), 'active']);
    expect((await resizectl('bypass', 'off')).exitCode).toBe(0);
    await takenOver();
  });

  test('resizectl bypass off keeps the bypass on and reports the reason if the shim does not start', async () => {
    const fault = invalidFlag;
    expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
    fault.begin();
    try {
      const off = await resizectl('bypass', 'off');
      expect(off.exitCode, off.all).toBe(1);
      expect(off.all).toMatch(/^bypass on, as before: .*no-such-flag/m);
      expect(await callOnNewConnection()).toBeLessThan(WITHIN_MS);
    } finally {
      fault.end();
    }
    expect((await resizectl('bypass', 'off')).exitCode).toBe(0);
    await takenOver();
  });
});

test('a shim that was stopped is bypassed, and stays stopped', async () => {
  await systemctl('stop', SERVICE);
  await expect.poll(() => active(BYPASS), LONG).toBe('active');
  expect([await callOnNewConnection(), await active(SERVICE)]).toEqual([expect.any(Number), 'inactive']);
  await systemctl('start', SERVICE);
  await takenOver();
});

test('a failing installation over a failed shim is rolled back, and the bypass continues to serve', async () => {
  await whileFailing(async () => {
    const before = readFileSync(SETTINGS, 'utf8');
    writeFileSync('/run/given.yaml', `${before}\nlogLevel: warn\n`);
    const failed = await resizectl('install', '--config', '/run/given.yaml');
    expect(failed.exitCode, failed.all).toBe(3);
    expect(failed.all).toMatch(/^rolled back: enable and start /m);
    expect(await callOnNewConnection()).toBeLessThan(WITHIN_MS);
    expect([await active(BYPASS), await isShim()]).toEqual(['active', false]);
    await calledThrough(OURS);
    expect(readFileSync(SETTINGS, 'utf8')).toBe(before);
  }, unreadableState);
  // The fallback still starts the shim.
  await takenOver();
});

test('uninstall removes the bypass while it serves', async () => {
  expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
  const off = await resizectl('uninstall');
  expect(off.exitCode, off.all).toBe(0);
  await calledThrough(CONTAINERD);
  const names = ['fallback', 'bypass', 'takeover'].map((name) => `cri-resize-shim-${name}.service`);
  for (const name of names) {
    expect(existsSync(`/etc/systemd/system/${name}`)).toBe(false);
    expect(await active(name)).toBe('inactive');
  }
  expect(existsSync(dirname(OURS.replace('unix://', '')))).toBe(false);
});
