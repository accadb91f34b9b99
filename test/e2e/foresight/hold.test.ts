import { closeSync, mkdirSync, openSync, readdirSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Kubelet, type PodMemory, removeFiles } from '../../support/e2e/kubelet.ts';
import { Served } from '../../support/e2e/served.ts';
import { cgroupOf, Tenant } from '../../support/e2e/tenant.ts';
import { FakeApiServer } from '../../support/kubernetes/fake-api-server.ts';
import type { Answer } from '../../support/resize-api/client.ts';

/**
 * Memory limits that kubelet has admitted, below hot page cache: usage has to stay below the limit until kubelet tries,
 * which takes 10 to 15 s with a real kubelet.
 */

// A folder of the host, so that the pages of its files are page cache.
const outside = process.env['NODE_OUT'] ?? '';
const STATE = '/run/hold-test-state';
/** The time until kubelet first tries. */
const LAG_MS = 15_000;

let served: Served;
/** The client remains usable after a restart of the shim. */
let cri: CriClient;
let kubelet: Kubelet;
const pods: RunningPod[] = [];
const tenants: Tenant[] = [];
const files: string[] = [];

beforeEach(async () => {
  mkdirSync(KUBELET_ROOT, { recursive: true });
  await start();
  cri = new CriClient(served.shim.address);
  kubelet = new Kubelet(cri);
});

afterEach(async () => {
  for (const tenant of tenants.splice(0)) await tenant.end();
  for (const pod of pods.splice(0)) {
    kubelet.forget(pod);
    await pod.remove();
  }
  for (const file of files.splice(0)) rmSync(file, { force: true });
  cri.close();
  await served.stop();
  removeFiles();
});

async function start(...args: readonly string[]): Promise<void> {
  served = await Served.start({ name: 'hold-test', args: ['--state-folder', STATE, ...args] });
}

/** Starts the shim again, and waits until clients have connected again. */
async function startAgain(): Promise<void> {
  await start();
  await cri.ready(30_000);
}

async function makePod(memory: PodMemory['containers'], more: Pick<PodSpec, 'podMemory'> = {}): Promise<RunningPod> {
  const pod = await runPod(cri, {
    name: 'web',
    ...more,
    containers: Object.entries(memory).map(([name, limit = 0]) => ({
      name,
      command: ['sleep', '1000000'],
      resources: { memory_limit_in_bytes: limit * MiB },
    })),
  });
  pods.push(pod);
  kubelet.runs(pod, { containers: memory });
  return pod;
}

/** Starts a process in the container that reads a file of this size into page cache, and then ten times per second. */
async function hotCache(pod: RunningPod, container: string, mebibytes: number): Promise<Tenant> {
  const file = join(outside, `hold-${files.length}`);
  closeSync(openSync(file, 'w'));
  truncateSync(file, mebibytes * MiB);
  files.push(file);
  const tenant = await Tenant.in(cgroupOf(pod.cgroup, pod.id(container)));
  tenants.push(tenant);
  await tenant.run('reread', file);
  return tenant;
}

const useOf = (pod: RunningPod, container?: string): number => Number(pod.read('memory.current', container)) / MiB;
const limitOf = (pod: RunningPod, container?: string): number => Number(pod.read('memory.max', container)) / MiB;
const highsOf = (pod: RunningPod): string[] => [pod.read('memory.high'), pod.read('memory.high', 'a')];
/** Makes the calls of kubelet before it lowers a memory limit. Returns the usage of the containers, in MiB. */
async function usageOfRuntime(pod: RunningPod): Promise<number[]> {
  const { stats } = await cri.call<{ stats: { memory: { usage_bytes: { value: number } } }[] }>('ListContainerStats', {
    filter: { pod_sandbox_id: pod.sandboxId },
  });
  return stats.map(({ memory }) => memory.usage_bytes.value / MiB);
}

const records = (): string[] => readdirSync(STATE).filter((name) => name.endsWith('.json'));

const held = (pod: RunningPod, number = 1) =>
  expect.poll(() => highsOf(pod).filter((high) => high !== 'max').length, { timeout: 20_000 }).toBe(number);

/** Files of a pod's cgroup that containerd reads, every second from 2.4 on. */
const FIGURES = ['memory.stat', 'memory.current', 'memory.max', 'memory.peak', 'cpu.stat'];

/** Returns the highest usage of the pod and of container `a` in this time, in MiB. */
async function highestIn(pod: RunningPod, ms: number): Promise<[number, number]> {
  const highest: [number, number] = [0, 0];
  for (const end = performance.now() + ms; performance.now() < end; ) {
    highest[0] = Math.max(highest[0], useOf(pod));
    highest[1] = Math.max(highest[1], useOf(pod, 'a'));
    await delay(100);
  }
  return highest;
}

describe('hot page cache', () => {
  test('KEP-1287: hot page cache is held below the lower limits of container and pod until kubelet applies them', async () => {
    const pod = await makePod({ a: 192 });
    const tenant = await hotCache(pod, 'a', 120);
    expect(useOf(pod, 'a')).toBeGreaterThan(110);
    kubelet.admit(pod, { containers: { a: 64 } });
    const begun = performance.now();
    await expect.poll(() => Math.max(useOf(pod), useOf(pod, 'a')), { timeout: 20_000, interval: 50 }).toBeLessThan(64);
    await held(pod, 2);
    console.log(`hot cache of 120 MiB: held below 64 MiB after ${Math.round(performance.now() - begun)} ms`);
    const [ofPod, ofContainer] = await highestIn(pod, LAG_MS);
    console.log(
      `in ${LAG_MS} ms: at most ${ofPod.toFixed(1)} MiB in the pod, ${ofContainer.toFixed(1)} in the container`,
    );
    expect([ofPod < 64, ofContainer < 64]).toEqual([true, true]);
    expect([limitOf(pod, 'a'), records().length]).toEqual([192, 1]);
    await kubelet.sync(pod);
    expect([limitOf(pod), limitOf(pod, 'a'), highsOf(pod), pod.oomKills()]).toEqual([64, 64, ['max', 'max'], 0]);
    await served.shim.waitForLog(({ msg }) => msg === 'memory decrease applied by kubelet after reclaim');
    expect([highsOf(pod), records(), tenant.isAlive]).toEqual([['max', 'max'], [], true]);
  });

  test("KEP-1287: kubelet's stats call for a pod waits until usage is held and cAdvisor has measured it, other calls do not", async () => {
    const pod = await makePod({ a: 192 });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    let answer: number[] | undefined;
    const waiting = usageOfRuntime(pod).then((found) => (answer = found));
    for (const file of FIGURES) pod.read(file);
    // Longer than cAdvisor needs to store what it has read.
    await delay(1000);
    const { stats } = await cri.call<{ stats: object[] }>('ListContainerStats', {});
    expect([answer, stats.length > 0]).toEqual([undefined, true]);
    // cAdvisor reads this file last.
    expect(pod.read('cgroup.procs')).toBe('');
    const since = performance.now();
    await waiting;
    console.log(`stats call answered ${Math.round(performance.now() - since)} ms after the pod was measured`);
    expect(answer).toHaveLength(1);
    expect(answer![0]).toBeLessThan(64);
    await kubelet.sync(pod);
    expect([limitOf(pod), limitOf(pod, 'a'), pod.oomKills()]).toEqual([64, 64, 0]);
  });

  test('KEP-1287: usage of a pod is held below its lower limit while a container with an unchanged limit uses all of it', async () => {
    const pod = await makePod({ a: 192, b: 96 });
    await hotCache(pod, 'a', 120);
    await hotCache(pod, 'b', 120);
    expect(useOf(pod)).toBeGreaterThan(190);
    kubelet.admit(pod, { containers: { a: 64, b: 96 } });
    await held(pod, 2);
    const [ofPod, ofContainer] = await highestIn(pod, LAG_MS);
    console.log(`two containers: at most ${ofPod.toFixed(1)} MiB of 160 in the pod, ${ofContainer.toFixed(1)} of 64`);
    expect([ofPod < 160, ofContainer < 64]).toEqual([true, true]);
    await kubelet.sync(pod);
    expect([limitOf(pod), limitOf(pod, 'a'), limitOf(pod, 'b')]).toEqual([160, 64, 96]);
    expect([highsOf(pod), pod.oomKills()]).toEqual([['max', 'max'], 0]);
  });

  test('KEP-1287: a CPU update releases a hold of memory usage, and the hold starts again after the update', async () => {
    const pod = await makePod({ a: 192 });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    await cri.updateContainer(pod.id('a'), { cpu_quota: 50_000, cpu_period: 100_000 });
    await served.shim.waitForLog(({ msg, end }) => msg === 'hold of memory usage ended' && end === 'released');
    await held(pod, 2);
    expect(limitOf(pod, 'a')).toBe(192);
    kubelet.admit(pod, { containers: { a: 192 } });
    await expect.poll(() => highsOf(pod), { timeout: 20_000 }).toEqual(['max', 'max']);
    await expect.poll(records).toEqual([]);
  });
});

describe('usage that climbs back while it is held', () => {
  let server: FakeApiServer;
  beforeEach(async () => {
    await served.stop();
    server = await new FakeApiServer().start();
    await start('--kubeconfig', server.kubeconfig('/run/hold-test-kubeconfig'), '--node-name', 'node-1');
    await cri.ready(30_000);
    await served.shim.waitForLog(({ msg }) => msg === 'watch of pod annotations started');
  });
  afterEach(async () => {
    // The shim ends before the server does.
    await served.stop();
    await server.stop();
    await startAgain();
  });

  test('KEP-1287: held usage that climbs back and cannot be reclaimed is Deferred within 5 s, with an event that has the figures', async () => {
    const pod = await makePod({ a: 192 });
    server.set({ uid: pod.uid, name: 'web', namespace: 'default', nodeName: 'node-1', annotations: {} });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    const other = await Tenant.in(cgroupOf(pod.cgroup, pod.id('a')));
    tenants.push(other);
    const held100 = other.run('hold', 100 * MiB);
    const unreclaimable = (): number => Number(/^anon (\d+)/m.exec(pod.read('memory.stat', 'a'))?.[1]) / MiB;
    // memory.high delays the process until then.
    await expect.poll(unreclaimable, { timeout: 30_000, interval: 50 }).toBeGreaterThan(62);
    const since = performance.now();
    const { note, type } = await server.event('MemoryDecreaseDeferred');
    const ms = Math.round(performance.now() - since);
    console.log(`usage has climbed back: event after ${ms} ms`);
    expect([ms < 5000, type]).toEqual([true, 'Warning']);
    // The message names the container or the pod: both have the new limit, and either may be checked first.
    expect(note).toMatch(
      /^(?:container a of )?pod default\/web: kubelet is to lower memory.max from 201326592 to 67108864, but \d+ bytes are in use that cannot be reclaimed \(anon \d+, .*; memory.current \d+\): expected less than 65011712$/,
    );
    await held100;
    // Right after the hold, usage may be below the limit for a moment. Then the next check defers the decrease again.
    const reported = async (): Promise<unknown> => {
      const { pod: answer } = await served.api.call('GetPod', { pod: { uid: pod.uid } });
      return (answer as Answer)['kubelet'];
    };
    await expect
      .poll(reported, { timeout: 10_000 })
      .toMatchObject({ state: 'DEFERRED', reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect([highsOf(pod), limitOf(pod, 'a'), pod.oomKills()]).toEqual([['max', 'max'], 192, 0]);
  });
});

test('a decrease is not reported as applied if its container ends while usage is held', async () => {
  // Container b has no limit, so the pod has none either: the only decrease ends with container a.
  const pod = await makePod({ a: 192, b: 0 }, { podMemory: 'max' });
  await hotCache(pod, 'a', 120);
  kubelet.admit(pod, { containers: { a: 64, b: 0 } });
  await held(pod);
  await cri.call('StopContainer', { container_id: pod.id('a'), timeout: 0 });
  const reported = async (): Promise<unknown> => {
    const { pod: answer } = await served.api.call('GetPod', { pod: { uid: pod.uid } });
    return (answer as Answer)['kubelet'];
  };
  await served.shim.waitForLog(({ msg }) => msg === 'hold of memory usage ended');
  await expect.poll(reported, { timeout: 20_000 }).toBeFalsy();
  expect(served.shim.log.map(({ msg }) => msg)).not.toContain('memory decrease applied by kubelet after reclaim');
});

describe('end of the shim during a hold', () => {
  test('KEP-1287: a shim that is stopped during a hold restores memory.high', async () => {
    const pod = await makePod({ a: 192 });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    await served.stop();
    expect([highsOf(pod), records()]).toEqual([['max', 'max'], []]);
    await startAgain();
  });

  test('KEP-1287: a shim that is stopped during a hold answers a waiting stats call of kubelet and ends within 5 s', async () => {
    const pod = await makePod({ a: 192 });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    let isAnswered = false;
    const waiting = usageOfRuntime(pod).then(() => (isAnswered = true));
    await delay(1000);
    expect(isAnswered).toBe(false);
    const since = performance.now();
    await Promise.all([served.stop(), waiting]);
    const ms = Math.round(performance.now() - since);
    console.log(`the shim with a waiting stats call ends in ${ms} ms`);
    expect([ms < 5000, highsOf(pod)]).toEqual([true, ['max', 'max']]);
    await startAgain();
  });

  test('KEP-1287: a shim that is killed during a hold restores memory.high when it starts again', async () => {
    const pod = await makePod({ a: 192 });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    served.shim.process.kill('SIGKILL');
    await served.shim.exited;
    expect(highsOf(pod)).not.toContain('max');
    expect(records()).toHaveLength(1);
    // With this admission, no usage needs to be held any more.
    kubelet.admit(pod, { containers: { a: 192 } });
    await startAgain();
    await expect.poll(() => highsOf(pod), { timeout: 20_000 }).toEqual(['max', 'max']);
    await expect.poll(records).toEqual([]);
    expect(limitOf(pod, 'a')).toBe(192);
  });

  test('KEP-1287: a shim that forwards every call restores memory.high after another shim was killed during a hold', async () => {
    const pod = await makePod({ a: 192 });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    served.shim.process.kill('SIGKILL');
    await served.shim.exited;
    expect(highsOf(pod)).not.toContain('max');
    await start('--intercept=false');
    await cri.ready(30_000);
    await expect.poll(() => highsOf(pod), { timeout: 20_000 }).toEqual(['max', 'max']);
    await served.stop();
    await startAgain();
    await expect.poll(records).toEqual([]);
  });

  test('a shim that is killed during a hold helps kubelet to apply the decrease when it starts again', async () => {
    const pod = await makePod({ a: 192 });
    await hotCache(pod, 'a', 120);
    kubelet.admit(pod, { containers: { a: 64 } });
    await held(pod, 2);
    served.shim.process.kill('SIGKILL');
    await served.shim.exited;
    await startAgain();
    const { ms, tries } = await kubelet.resize(pod, { containers: { a: 64 } }, 20_000, 1000);
    console.log(`after a crash: ${ms} ms from admission to actuation, kubelet tried ${tries} times`);
    expect([limitOf(pod), limitOf(pod, 'a'), highsOf(pod), pod.oomKills()]).toEqual([64, 64, ['max', 'max'], 0]);
  });
});
