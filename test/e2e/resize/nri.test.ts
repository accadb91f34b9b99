import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { NriPlugin } from '../../support/e2e/nri-plugin.ts';
import { Served } from '../../support/e2e/served.ts';

/** A containerd plugin (NRI) that chooses a container's values, like koordlet and nri-plugins' policies. */

let served: Served;
let plugin: NriPlugin;
let pod: RunningPod;

beforeAll(async () => {
  served = await Served.start({ name: 'nri-test' });
  plugin = await NriPlugin.start();
});
afterEach(async () => {
  plugin.chooses.clear();
  await pod.remove();
});
afterAll(async () => {
  plugin.close();
  await served.stop();
});

async function makePod(): Promise<void> {
  const container = (name: string, mebibytes: number) => ({
    name,
    command: ['sleep', '1000000'],
    resources: { memory_limit_in_bytes: mebibytes * MiB, cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 },
  });
  pod = await runPod(served.cri, { name: 'chosen', containers: [container('a', 100), container('b', 60)] });
}

const memory = (): number[] =>
  [pod.read('memory.max'), pod.read('memory.max', 'a'), pod.read('memory.max', 'b')].map(
    (limit) => Number(limit) / MiB,
  );
const resize = (containers: object): Promise<unknown> =>
  served.api.call('ResizePod', { pod: { sandbox_id: pod.sandboxId }, containers });
const update = (linux: object): Promise<object> => served.cri.updateContainer(pod.id('a'), linux);
const keepMemory = (mebibytes: number): void =>
  void plugin.chooses.set(pod.id('a'), { memory: { limit: { value: mebibytes * MiB } } });

describe('a plugin that keeps the value a container has (koordinator 3129, kubernetes 130598)', () => {
  test('if an NRI plugin overrides a memory limit, update and resize succeed, and the pod limit matches the applied value', async () => {
    await makePod();
    keepMemory(100);
    await update({ memory_limit_in_bytes: 120 * MiB });
    expect(memory()).toEqual([160, 100, 60]);
    await resize({ a: { limits: { memory: '120Mi' } }, b: { limits: { memory: '80Mi' } } });
    expect(memory()).toEqual([180, 100, 80]);
    await resize({ a: { limits: { memory: '60Mi' } } });
    expect(memory()).toEqual([180, 100, 80]);
    expect(served.shim.log).toContainEqual(
      expect.objectContaining({
        msg: 'runtime applied other values than requested',
        files: expect.stringContaining('memory.max') as string,
      }),
    );
  });

  test('an NRI plugin keeps the CPU of a container: update and resize succeed, and the pod follows the container', async () => {
    await makePod();
    plugin.chooses.set(pod.id('a'), { cpu: { quota: { value: 10_000 }, period: { value: 100_000 } } });
    await update({ cpu_quota: 30_000, cpu_period: 100_000 });
    await resize({ a: { limits: { cpu: '300m' } } });
    expect([pod.read('cpu.max'), pod.read('cpu.max', 'a')]).toEqual(['20000 100000', '10000 100000']);
  });

  test('an NRI plugin keeps a unified setting of a container: an update succeeds', async () => {
    await makePod();
    await update({ unified: { 'memory.high': String(80 * MiB) } });
    plugin.chooses.set(pod.id('a'), { unified: { 'memory.high': String(80 * MiB) } });
    await update({ unified: { 'memory.high': String(90 * MiB) } });
    expect(pod.read('memory.high', 'a')).toBe(String(80 * MiB));
  });
});

test('an NRI plugin chooses a third memory value: a resize succeeds, and the pod follows the container', async () => {
  await makePod();
  keepMemory(110);
  await resize({ a: { limits: { memory: '120Mi' } } });
  expect(memory()).toEqual([170, 110, 60]);
});
