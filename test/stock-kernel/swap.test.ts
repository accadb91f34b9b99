import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { CriClient, Resources } from '../support/cri/client.ts';
import { type RunningPod, runPod } from '../support/cri/pod.ts';
import { Served } from '../support/e2e/served.ts';
import { Tenant } from '../support/e2e/tenant.ts';
import { type ResizeClient, refusal } from '../support/resize-api/client.ts';

/** Swap on a disk, and a containerd in its own cgroup, as with systemd: it applies CRI's field for swap. */

const SYSTEM = '/sys/fs/cgroup/system';

let served: Served;
let cri: CriClient;
let api: ResizeClient;
let running: RunningPod;

beforeAll(async () => {
  mkdirSync(SYSTEM);
  await execa('node-containerd', ['restart']);
  // containerd looks for its swap controller at its first update.
  writeFileSync(`${SYSTEM}/cgroup.procs`, readFileSync('/run/node/containerd.pid', 'utf8'));
  served = await Served.start({ name: 'disk-swap-test', args: ['--foresight=false'] });
  ({ cri, api } = served);
});
afterEach(() => running.remove());
afterAll(() => served.stop());

async function pod(resources: Resources): Promise<void> {
  running = await runPod(cri, {
    name: 'swap',
    containers: [{ name: 'app', command: ['sleep', '1000000'], resources }],
  });
}
/** CRI's field contains the sum of memory and swap. */
const limits = (memory: number, swap: number): Resources => ({
  memory_limit_in_bytes: memory * MiB,
  memory_swap_limit_in_bytes: (memory + swap) * MiB,
});
const resize = (memory: string) =>
  api.call('ResizePod', { pod: { uid: running.uid }, containers: { app: { limits: { memory } } } });
const inMiB = (...files: string[]): number[] => files.map((file) => Number(running.read(file, 'app')) / MiB);
const found = (): number[] => inMiB('memory.max', 'memory.swap.max');

describe('the field for swap', () => {
  test('KEP-1287: the swap limit of UpdateContainerResources is set in the kernel', async () => {
    await pod(limits(64, 32));
    expect(found()).toEqual([64, 32]);
    await cri.updateContainer(running.id('app'), limits(128, 64));
    expect(found()).toEqual([128, 64]);
    await cri.updateContainer(running.id('app'), limits(48, 16));
    expect(found()).toEqual([48, 16]);
  });

  test('KEP-1287: the swap limit is rolled back with an update that the runtime refuses', async () => {
    await pod(limits(64, 32));
    const refused = cri.updateContainer(running.id('app'), { ...limits(128, 64), unified: { 'memory.nonsense': '1' } });
    await expect(refused).rejects.toMatchObject({ details: expect.stringContaining('memory.nonsense') as string });
    expect([...found(), Number(running.read('memory.max')) / MiB]).toEqual([64, 32, 64]);
  });

  test('KEP-1287: the swap limit is kept by a ResizePod that raises or lowers memory', async () => {
    await pod(limits(64, 32));
    await resize('128Mi');
    expect(found()).toEqual([128, 32]);
    await resize('48Mi');
    expect(found()).toEqual([48, 32]);
  });
});

describe('LimitedSwap, which kubelet sets by a key of unified', () => {
  const burstable = (memory: number, swap: number): Resources => ({
    memory_limit_in_bytes: memory * MiB,
    unified: { 'memory.swap.max': String(swap * MiB) },
  });

  test('a ResizePod can swap out memory up to the limit of LimitedSwap, and is rejected if it needs more', async () => {
    await pod(burstable(256, 64));
    const tenant = await Tenant.in(running.containerCgroup('app'));
    await tenant.run('hold', 120 * MiB);
    const { reason } = await refusal(resize('32Mi'));
    expect([reason, ...found()]).toEqual(['MEMORY_NOT_RECLAIMABLE', 256, 64]);
    await resize('96Mi');
    expect(found()).toEqual([96, 64]);
    expect(inMiB('memory.swap.current')[0]).toBeGreaterThan(20);
    await tenant.run('nothing');
    expect(running.oomKills()).toBe(0);
    await tenant.end();
  });

  test('LimitedSwap follows an update of memory and swap, as after a change of the request', async () => {
    await pod(burstable(128, 32));
    await cri.updateContainer(running.id('app'), burstable(192, 48));
    expect(found()).toEqual([192, 48]);
    await cri.updateContainer(running.id('app'), burstable(96, 0));
    expect(found()).toEqual([96, 0]);
  });
});
