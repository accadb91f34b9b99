import { mkdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { type PodReport, PodWatcher } from '../../watch/watcher.ts';
import { Kubelet, type PodMemory, removeFiles } from '../../support/e2e/kubelet.ts';

/** kubelet's calls one by one, of which the shim knows where they lead: volumes and the pod's limit go there straight. */

const MiB = 1024 * 1024;
const SLEEP = ['sleep', '1000000'];

let shim: ShimProcess;
let cri: CriClient;
const pods: RunningPod[] = [];

async function start(...args: string[]): Promise<void> {
  mkdirSync(KUBELET_ROOT, { recursive: true });
  shim = await ShimProcess.start({ args });
  cri = new CriClient(shim.address);
}

async function stop(): Promise<void> {
  cri.close();
  expect(await shim.stop()).toBe(0);
}

afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.remove();
});

type Sizes = Readonly<Record<string, number>>;

/** Containers with these limits in mebibytes, and one volume that all have. */
async function makePod(
  kubelet: Kubelet,
  memory: Sizes,
  { cache, policy, ...more }: { readonly cache: number; readonly policy?: string } & Partial<PodSpec>,
): Promise<RunningPod> {
  const pod = await runPod(cri, {
    name: 'web',
    containers: Object.entries(memory).map(([name, limit]) => ({
      name,
      command: SLEEP,
      resources: { memory_limit_in_bytes: limit * MiB },
      mounts: { cache: '/cache' },
    })),
    volumes: [{ name: 'cache', size: cache * MiB }],
    ...(policy !== undefined && { annotations: { 'volume.cri-resize-shim.io/cache': policy } }),
    ...more,
  });
  pods.push(pod);
  kubelet.runs(pod, { containers: memory });
  return pod;
}

const to = (containers: Sizes): PodMemory => ({ containers });
const sizeOf = (pod: RunningPod): number => pod.volume('cache').size / MiB;
const fill = (pod: RunningPod, mebibytes: number): Promise<string> =>
  cri.exec(pod.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/stored', 'bs=1M', `count=${mebibytes}`);
/** What one of them was, one after the other, in mebibytes: `volume cache`, `pod memory.max`. */
const valuesOf = ({ states }: PodReport, what: string): number[] =>
  states.map((state) => Number(state[what]) / MiB).filter((value, at, all) => value !== all[at - 1]);
/** The first state in which one of them had that value. */
const firstWith = ({ states }: PodReport, what: string, mebibytes: number): number =>
  states.findIndex((state) => state[what] === String(mebibytes * MiB));
/** Of each of the pod's containers and the pod. */
const limitsOf = (pod: RunningPod): number[] =>
  [undefined, ...pod.containers.keys()].map((name) => Number(pod.read('memory.max', name)) / MiB);

describe('with foresight', () => {
  let kubelet: Kubelet;
  beforeAll(async () => {
    await start();
    kubelet = new Kubelet(cri);
  });
  afterAll(async () => {
    await stop();
    removeFiles();
  });

  test('a volume that follows shrinks once, before the first container is lowered', async () => {
    const pod = await makePod(kubelet, { a: 128, b: 128 }, { cache: 256 });
    const watcher = await PodWatcher.watch(pod);
    await kubelet.resize(pod, to({ a: 64, b: 48 }), 5000);
    const report = await watcher.report();
    expect(valuesOf(report, 'volume cache')).toEqual([256, 112]);
    expect(firstWith(report, 'volume cache', 112)).toBeLessThan(firstWith(report, 'a memory.max', 64));
    expect(limitsOf(pod)).toEqual([112, 64, 48]);
  });

  test('1.36, and the pod gains: refused at its own call, before kubelet has written anything; then shrunk once, before the pod is raised', async () => {
    const pod = await makePod(kubelet, { a: 128, b: 64 }, { cache: 64, policy: '50%/a' });
    await fill(pod, 40);
    await expect(kubelet.resize(pod, to({ a: 64, b: 256 }), 300)).rejects.toMatchObject({ code: 9 });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 128, 64], 64]);
    await cri.exec(pod.id('a'), 'rm', '/cache/stored');

    const watcher = await PodWatcher.watch(pod);
    await kubelet.resize(pod, to({ a: 64, b: 256 }), 5000);
    const report = await watcher.report();
    expect(valuesOf(report, 'volume cache')).toEqual([64, 32]);
    // Both may come within one look, and the limit never before the volume.
    expect(firstWith(report, 'volume cache', 32)).toBeLessThanOrEqual(firstWith(report, 'pod memory.max', 320));
    expect(limitsOf(pod)).toEqual([320, 64, 256]);

    // 1.33 to 1.35 write the pod first, and do not mind what the runtime says: refused at the first container.
    await kubelet.resize(pod, to({ a: 128, b: 64 }), 5000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 128, 64], 64]);
    const earlier = new Kubelet(cri, { tells: 'after' });
    earlier.runs(pod, to({ a: 128, b: 64 }));
    await fill(pod, 40);
    await expect(earlier.resize(pod, to({ a: 64, b: 256 }), 300)).rejects.toMatchObject({ code: 9 });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[320, 128, 64], 64]);
  });

  test('what grows does so with the last container, and not 2 s later', async () => {
    const pod = await makePod(kubelet, { a: 64, b: 64 }, { cache: 32, policy: '50%/a' });
    await kubelet.resize(pod, to({ a: 128, b: 96 }), 5000);
    // kubelet has just had its last answer.
    expect(sizeOf(pod)).toBe(64);
    // Looser than its containers need, on purpose: nothing but the record tells that this was the last one.
    await cri.updatePod(pod.sandboxId, { memory_limit_in_bytes: 512 * MiB }, { overhead: {} });
    await kubelet.resize(pod, { containers: { a: 192, b: 96 }, level: 512 }, 5000);
    expect(sizeOf(pod)).toBe(96);
  });

  test('a shrink that does not fit refuses the first call, of a container: nothing is touched, and it is done once it fits', async () => {
    const pod = await makePod(kubelet, { a: 128, b: 128 }, { cache: 128, policy: '50%/b' });
    await fill(pod, 40);
    const before = [limitsOf(pod), sizeOf(pod)];
    // a comes first, and the volume goes by b.
    await expect(kubelet.resize(pod, to({ a: 96, b: 64 }), 300)).rejects.toMatchObject({
      code: 9,
      details: expect.stringContaining(`${40 * MiB} are stored in it`) as string,
    });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual(before);
    await cri.exec(pod.id('a'), 'rm', '/cache/stored');
    await kubelet.resize(pod, to({ a: 96, b: 64 }), 5000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[160, 96, 64], 32]);
  });

  test('the pod’s limit is not lowered on the way to be raised again', async () => {
    const pod = await makePod(kubelet, { a: 192, b: 64 }, { cache: 32, policy: 'fixed' });
    const watcher = await PodWatcher.watch(pod);
    await kubelet.resize(pod, to({ a: 64, b: 192 }), 5000);
    const report = await watcher.report();
    expect(report.violations).toEqual([]);
    expect(valuesOf(report, 'a memory.max')).toEqual([192, 64]);
    expect(valuesOf(report, 'pod memory.max')).toEqual([256]);
    expect(limitsOf(pod)).toEqual([256, 64, 192]);
  });

  test('a call of somebody else is no part of it: volumes go by what is', async () => {
    const pod = await makePod(kubelet, { a: 128 }, { cache: 64, policy: '50%' });
    kubelet.admit(pod, to({ a: 64 }));
    await cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: 160 * MiB });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[160, 160], 80]);
  });

  test('a shim that is started anew in the middle knows where it leads', async () => {
    const pod = await makePod(kubelet, { a: 128, b: 128 }, { cache: 256 });
    kubelet.admit(pod, to({ a: 64, b: 48 }));
    await cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: 64 * MiB });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 64, 128], 112]);
    const first = cri;
    expect(await shim.stop()).toBe(0);
    await start();
    const after = new Kubelet(cri);
    after.runs(pod, to({ a: 128, b: 128 }));
    // Still follows, though no limit of the pod is like it yet.
    await after.resize(pod, to({ a: 64, b: 48 }), 5000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[112, 64, 48], 112]);
    await after.resize(pod, to({ a: 128, b: 64 }), 5000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 128, 64], 192]);
    kubelet = after;
    for (const each of pods.splice(0)) await each.remove();
    first.close();
  });
});

test('without foresight they go by each call, and a shrink that does not fit is found half-way', async () => {
  await start('--foresight=false');
  const kubelet = new Kubelet(cri);
  const pod = await makePod(kubelet, { a: 128, b: 128 }, { cache: 128, policy: '50%/b' });
  await fill(pod, 40);
  await expect(kubelet.resize(pod, to({ a: 96, b: 64 }), 0)).rejects.toMatchObject({ code: 9 });
  expect(limitsOf(pod)).toEqual([224, 96, 128]);
  for (const each of pods.splice(0)) await each.remove();
  await stop();
  removeFiles();
});
