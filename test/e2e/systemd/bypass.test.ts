import { existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod } from '../../support/cri/pod.ts';
import {
  CONFIG,
  CONTAINERD,
  OURS,
  SETTINGS,
  calledThrough,
  failedCalls,
  property,
  startKubelet,
  stopKubelet,
} from '../../support/e2e/kubelet-unit.ts';
import { startSystemdNode } from '../../support/e2e/systemd-node.ts';
import { PROGRAM, faults, invalidFlag } from '../../support/e2e/shim-faults.ts';

/**
 * The shim fails in every way that its units know of, and clients reach containerd through the same socket, without the
 * shim. When it is back, they use it again, and no call is lost then. kubelet is a stand-in.
 */

// On a node where systemd is the first process: npm run node -- --init systemd

const SERVICE = 'cri-resize-shim.service';
const BYPASS = 'cri-resize-shim-bypass.service';
const FALLBACK = 'cri-resize-shim-fallback.service';
const TAKEOVER = 'cri-resize-shim-takeover.service';
const FAILURES = '/run/cri-resize-shim-fallback/failures';
/** As the promise says. */
const WITHIN_MS = 10_000;
/** Each look starts a systemctl, which takes systemd some time. */
const LONG = { timeout: 60_000, interval: 300 };

let direct: CriClient;
let pod: RunningPod;

beforeAll(async () => {
  ({ direct, pod } = await startSystemdNode(['a']));
}, 240_000);
afterAll(async () => {
  await resizectl('uninstall');
  await stopKubelet();
  await pod.remove();
  direct.close();
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

/** Calls with a new connection, as crictl does. Returns the milliseconds until the answer. */
async function callAnew(): Promise<number> {
  const since = Date.now();
  const client = new CriClient(OURS);
  try {
    expect(await client.version()).toMatchObject({ runtime_name: 'containerd' });
  } finally {
    client.close();
  }
  return Date.now() - since;
}

/** Whether the shim answers, or containerd itself. */
async function isShim(): Promise<boolean> {
  const client = new CriClient(OURS);
  try {
    const { info } = await client.call<{ info: Readonly<Record<string, string>> }>('Status', { verbose: true });
    return 'cri-resize-shim' in info;
  } finally {
    client.close();
  }
}

/** Calls about every 20 ms on one connection, from before the function is called until it has returned. */
async function callingThroughout(work: () => Promise<void>): Promise<readonly PromiseSettledResult<unknown>[]> {
  const client = new CriClient(OURS);
  await client.version();
  const calls: Promise<unknown>[] = [];
  const callOnce = (): void => {
    const call = client.version();
    call.catch(() => undefined);
    calls.push(call);
  };
  const timer = setInterval(callOnce, 20);
  try {
    callOnce();
    await work();
    callOnce();
  } finally {
    clearInterval(timer);
  }
  const results = await Promise.allSettled(calls);
  client.close();
  return results;
}

const rejected = (results: readonly PromiseSettledResult<unknown>[]): readonly unknown[] =>
  results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));

/** Calls the function while the shim does not start and the bypass serves. */
async function whileFailing(work: () => Promise<void>): Promise<void> {
  rmSync(FAILURES, { force: true });
  const fault = invalidFlag;
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

test('installing brings a bypass that waits', async () => {
  await startKubelet(`--config=${CONFIG}`);
  const { all, exitCode } = await resizectl('install');
  expect(exitCode, all).toBe(0);
  await calledThrough(OURS);
  await takenOver();
  expect((await resizectl('doctor')).all).toMatch(/^bypass +ok +ready to serve if the shim fails/m);
});

describe.each(faults)('$title', ({ begin, end }) => {
  test('clients reach containerd within 10 s, and the shim takes over again without a lost call', async () => {
    rmSync(FAILURES, { force: true });
    const kubelet = await property('kubelet.service', 'MainPID');
    begin();
    try {
      const failed = failedCalls().length;
      await systemctl('restart', '--no-block', SERVICE);
      // Not the process from before.
      await expect.poll(() => active(SERVICE), LONG).not.toBe('active');
      expect(await callAnew()).toBeLessThan(WITHIN_MS);
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
      // The hanging start ends by its time limit only.
      await systemctl('kill', '--signal=SIGKILL', SERVICE);
      await takenOver();
    });
    expect(rejected(results)).toEqual([]);
    expect(await isShim()).toBe(true);
    await calledThrough(OURS);
    expect(failedCalls().length).toBe(failed);
    expect(await property('kubelet.service', 'MainPID')).toBe(kubelet);
  }, 180_000);
});

test('a shim that crashes again and again after it was ready is bypassed, and tried with growing pauses', async () => {
  rmSync(FAILURES, { force: true });
  const whole = readFileSync(PROGRAM, 'utf8');
  writeFileSync(PROGRAM, `${whole}\nsetTimeout(() => process.abort(), 3000);\n`);
  try {
    await systemctl('restart', SERVICE);
    await expect.poll(() => active(BYPASS), LONG).toBe('active');
    expect(Number(readFileSync(FAILURES, 'utf8'))).toBe(3);
    await calledThrough(OURS);
  } finally {
    writeFileSync(PROGRAM, whole);
  }
  await takenOver();
}, 180_000);

test('a shim that fails again during its takeover leaves a bypass that has cut off no call', async () => {
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
    // It has seen the failure itself, or the fallback has been faster and has stopped it by SIGTERM.
    expect(['3', '15']).toContain(await property(TAKEOVER, 'ExecMainStatus'));
  } finally {
    writeFileSync(PROGRAM, whole);
    rmSync(order, { force: true });
  }
  expect(await callAnew()).toBeLessThan(WITHIN_MS);
  expect([await active(BYPASS), await property(BYPASS, 'MainPID')]).toEqual(['active', bypass]);
  await begun;
  one.close();
  await systemctl('start', SERVICE);
  await takenOver();
}, 120_000);

test('a shim that does not start is tried after 5 s, 10 s and 20 s, while the bypass serves', async () => {
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
      // And the time of the start that fails: on a busy machine seconds, but the next pause would be twice as long.
      expect(waited).toBeLessThan(2 * pause + 2);
    }
    expect(await active(BYPASS)).toBe('active');
  });
  await systemctl('start', SERVICE);
  await takenOver();
}, 180_000);

test('the bypass leads to the socket of containerd that the shim has used last', async () => {
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
    // The next one does not start, and does not know the socket.
    writeFileSync(SETTINGS, before);
    invalidFlag.begin();
    await systemctl('restart', '--no-block', SERVICE);
    await expect.poll(() => active(BYPASS), LONG).toBe('active');
    expect(await target()).toBe(link);
    expect(await callAnew()).toBeLessThan(WITHIN_MS);
  } finally {
    invalidFlag.end();
    writeFileSync(SETTINGS, before);
  }
  await systemctl('start', SERVICE);
  await takenOver();
  rmSync(link);
  await systemctl('stop', SERVICE);
  await expect.poll(() => active(BYPASS), LONG).toBe('active');
  expect(await target()).toBe('/run/containerd/containerd.sock');
  await systemctl('start', SERVICE);
  await takenOver();
}, 180_000);

test('a shim that is killed once starts again at once, without the bypass', async () => {
  rmSync(FAILURES, { force: true });
  const pid = Number(await property(SERVICE, 'MainPID'));
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => property(SERVICE, 'MainPID'), LONG).not.toMatch(new RegExp(`^(0|${pid})$`));
  expect(await callAnew()).toBeLessThan(WITHIN_MS);
  await takenOver();
  expect(await property(BYPASS, 'ActiveEnterTimestampMonotonic')).toMatch(/^\d*$/);
  expect(await isShim()).toBe(true);
});

describe('resizectl bypass', () => {
  test('on and off: no call is lost, also one that takes seconds', async () => {
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
  }, 120_000);

  test('on holds after a reboot, and no installation ends it', async () => {
    expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
    const sockets = ['cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];
    await systemctl('stop', SERVICE, ...sockets);
    expect(await active(BYPASS)).toBe('inactive');
    // As the next boot does it.
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
  }, 120_000);

  test('on holds for a shim that fails, which is not tried any more', async () => {
    await whileFailing(async () => {
      expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
    });
    await expect.poll(() => active(FALLBACK), LONG).toBe('inactive');
    expect([await active(SERVICE), await active(BYPASS)]).toEqual([expect.not.stringMatching(/^activ/), 'active']);
    expect((await resizectl('bypass', 'off')).exitCode).toBe(0);
    await takenOver();
  }, 120_000);

  test('off stays on, with the reason, if the shim does not start', async () => {
    const fault = invalidFlag;
    expect((await resizectl('bypass', 'on')).exitCode).toBe(0);
    fault.begin();
    try {
      const off = await resizectl('bypass', 'off');
      expect(off.exitCode, off.all).toBe(1);
      expect(off.all).toMatch(/^bypass on, as before: .*no-such-flag/m);
      expect(await callAnew()).toBeLessThan(WITHIN_MS);
    } finally {
      fault.end();
    }
    expect((await resizectl('bypass', 'off')).exitCode).toBe(0);
    await takenOver();
  }, 120_000);
});

test('a shim that was stopped is bypassed, and stays stopped', async () => {
  await systemctl('stop', SERVICE);
  await expect.poll(() => active(BYPASS), LONG).toBe('active');
  expect([await callAnew(), await active(SERVICE)]).toEqual([expect.any(Number), 'inactive']);
  await systemctl('start', SERVICE);
  await takenOver();
});

test('uninstalling removes the bypass, also while it serves', async () => {
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
