import { mkdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type PodSpec, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { Kubelet, type PodMemory, removeFiles } from '../../support/e2e/kubelet.ts';
import { type PodReport, PodWatcher } from '../../watch/watcher.ts';

/** kubelet's calls one by one. The shim knows their final values, so volumes and the pod limit go there directly. */

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

/** Creates containers with these limits in MiB, and one volume that all of them mount. */
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
/** Returns the successive values of an entry in MiB, such as `volume cache` or `pod memory.max`. */
const valuesOf = ({ states }: PodReport, what: string): number[] =>
  states.map((state) => Number(state[what]) / MiB).filter((value, at, all) => value !== all[at - 1]);
/** Returns the index of the first state in which an entry has a value. */
const firstWith = ({ states }: PodReport, what: string, mebibytes: number): number =>
  states.findIndex((state) => state[what] === String(mebibytes * MiB));
/** The limits of the pod and of each of its containers, in MiB. */
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

  test('KEP-6030: a volume that follows the limit shrinks once, before the first container is lowered', async () => {
    const pod = await makePod(kubelet, { a: 128, b: 128 }, { cache: 256 });
    const watcher = await PodWatcher.watch(pod);
    await kubelet.resize(pod, to({ a: 64, b: 48 }), 120_000);
    const report = await watcher.report();
    expect(valuesOf(report, 'volume cache')).toEqual([256, 112]);
    expect(firstWith(report, 'volume cache', 112)).toBeLessThan(firstWith(report, 'a memory.max', 64));
    expect(limitsOf(pod)).toEqual([112, 64, 48]);
  });

  test("KEP-6030: kubelet 1.36: an infeasible shrink of a volume rejects the pod call, and a feasible one precedes the pod's raise", async () => {
    const pod = await makePod(kubelet, { a: 128, b: 64 }, { cache: 64, policy: '50%/a' });
    await fill(pod, 40);
    await expect(kubelet.resize(pod, to({ a: 64, b: 256 }), 300)).rejects.toMatchObject({ code: 9 });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 128, 64], 64]);
    await cri.exec(pod.id('a'), 'rm', '/cache/stored');

    const watcher = await PodWatcher.watch(pod);
    await kubelet.resize(pod, to({ a: 64, b: 256 }), 120_000);
    const report = await watcher.report();
    expect(valuesOf(report, 'volume cache')).toEqual([64, 32]);
    // Both changes may appear in one reading, but the limit never changes before the volume.
    expect(firstWith(report, 'volume cache', 32)).toBeLessThanOrEqual(firstWith(report, 'pod memory.max', 320));
    expect(limitsOf(pod)).toEqual([320, 64, 256]);

    // kubelet 1.33 to 1.35 write the pod first and ignore the runtime's answer, so the first container call is
    // rejected.
    await kubelet.resize(pod, to({ a: 128, b: 64 }), 120_000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 128, 64], 64]);
    const earlier = new Kubelet(cri, { informsRuntime: 'after' });
    earlier.runs(pod, to({ a: 128, b: 64 }));
    await fill(pod, 40);
    await expect(earlier.resize(pod, to({ a: 64, b: 256 }), 300)).rejects.toMatchObject({ code: 9 });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[320, 128, 64], 64]);
  });

  test('KEP-6030: a volume grows to its final size with the call for the last container', async () => {
    const pod = await makePod(kubelet, { a: 64, b: 64 }, { cache: 32, policy: '50%/a' });
    await kubelet.resize(pod, to({ a: 128, b: 96 }), 120_000);
    // kubelet has just received its last answer.
    expect(sizeOf(pod)).toBe(64);
    // The limit is deliberately looser than the containers need: only the checkpoint shows that this was the last call.
    await cri.updatePod(pod.sandboxId, { memory_limit_in_bytes: 512 * MiB }, { overhead: {} });
    await kubelet.resize(pod, { containers: { a: 192, b: 96 }, level: 512 }, 120_000);
    expect(sizeOf(pod)).toBe(96);
  });

  test('KEP-6030: an infeasible shrink of a volume rejects the first container call and changes nothing until it fits', async () => {
    const pod = await makePod(kubelet, { a: 128, b: 128 }, { cache: 128, policy: '50%/b' });
    await fill(pod, 40);
    const before = [limitsOf(pod), sizeOf(pod)];
    // Container a is lowered first, and the volume follows container b.
    await expect(kubelet.resize(pod, to({ a: 96, b: 64 }), 300)).rejects.toMatchObject({
      code: 9,
      details: expect.stringContaining(`${40 * MiB} are stored in it`) as string,
    });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual(before);
    await cri.exec(pod.id('a'), 'rm', '/cache/stored');
    await kubelet.resize(pod, to({ a: 96, b: 64 }), 120_000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[160, 96, 64], 32]);
  });

  test('KEP-6030: a volume that kubelet resizes itself does not follow the limit', async () => {
    const pod = await makePod(kubelet, { a: 64 }, { cache: 64 });
    kubelet.runs(pod, { containers: { a: 64 }, volumes: { cache: 64 } });
    const watcher = await PodWatcher.watch(pod);
    await kubelet.resize(pod, { containers: { a: 128 }, volumes: { cache: 64 } }, 120_000);
    await kubelet.resize(pod, { containers: { a: 48 }, volumes: { cache: 64 } }, 120_000);
    expect(valuesOf(await watcher.report(), 'volume cache')).toEqual([64]);
    // kubelet is replaced by one without the feature gate, which admits the pod again.
    kubelet.runs(pod, to({ a: 48 }));
    await kubelet.resize(pod, to({ a: 40 }), 120_000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[40, 40], 40]);
  });

  test('KEP-1287: the pod limit is not lowered if a later step would raise it again', async () => {
    const pod = await makePod(kubelet, { a: 192, b: 64 }, { cache: 32, policy: 'fixed' });
    const watcher = await PodWatcher.watch(pod);
    await kubelet.resize(pod, to({ a: 64, b: 192 }), 120_000);
    const report = await watcher.report();
    expect(report.violations).toEqual([]);
    expect(valuesOf(report, 'a memory.max')).toEqual([192, 64]);
    expect(valuesOf(report, 'pod memory.max')).toEqual([256]);
    expect(limitsOf(pod)).toEqual([256, 64, 192]);
  });

  test('KEP-1287: a call from another client resizes volumes by the current limits, not by the target of kubelet', async () => {
    const pod = await makePod(kubelet, { a: 128 }, { cache: 64, policy: '50%' });
    kubelet.admit(pod, to({ a: 64 }));
    await cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: 160 * MiB });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[160, 160], 80]);
  });

  test('KEP-1287: a shim that restarts in the middle of a resize by kubelet knows the target of the resize', async () => {
    const pod = await makePod(kubelet, { a: 128, b: 128 }, { cache: 256 });
    kubelet.admit(pod, to({ a: 64, b: 48 }));
    await cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: 64 * MiB });
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 64, 128], 112]);
    const first = cri;
    expect(await shim.stop()).toBe(0);
    await start();
    const after = new Kubelet(cri);
    after.runs(pod, to({ a: 128, b: 128 }));
    // The volume still follows, although no limit of the pod equals its size yet.
    await after.resize(pod, to({ a: 64, b: 48 }), 120_000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[112, 64, 48], 112]);
    await after.resize(pod, to({ a: 128, b: 64 }), 120_000);
    expect([limitsOf(pod), sizeOf(pod)]).toEqual([[192, 128, 64], 192]);
    kubelet = after;
    for (const each of pods.splice(0)) await each.remove();
    first.close();
  });
});

test('without foresight volumes are resized by each call, and an infeasible shrink is found half-way', async () => {
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
