import { writeFileSync } from 'node:fs';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Served } from '../../support/e2e/served.ts';
import { Tenant } from '../../support/e2e/tenant.ts';
import { type ResizeClient, refusal } from '../../support/resize-api/client.ts';

/** Memory limits below anonymous memory on a node with swap, in compressed memory: the node has no disk. */

let served: Served;
let cri: CriClient;
let api: ResizeClient;
let running: RunningPod;
let tenant: Tenant;

beforeAll(async () => {
  await execa('modprobe', ['zram']);
  writeFileSync('/sys/block/zram0/disksize', '256M');
  await execa('mkswap', ['/dev/zram0']);
  await execa('swapon', ['/dev/zram0']);
  served = await Served.start({ name: 'swap-test', args: ['--foresight=false'] });
  ({ cri, api } = served);
});
afterEach(async () => {
  await tenant.end();
  await running.remove();
});
afterAll(async () => {
  await served.stop();
  // The pods of other tests must not use swap.
  await execa('swapoff', ['/dev/zram0']);
  writeFileSync('/sys/block/zram0/reset', '1');
});

/** Creates a container with a limit of 512 MiB, this memory.swap.max and this amount of allocated memory. */
async function pod(swapMax: string, anon: number): Promise<void> {
  const resources = { memory_limit_in_bytes: 512 * MiB, unified: { 'memory.swap.max': swapMax } };
  running = await runPod(cri, { name: 'web', containers: [{ name: 'app', command: ['sleep', '1000000'], resources }] });
  tenant = await Tenant.in(running.containerCgroup('app'));
  await tenant.run('hold', anon * MiB);
}
const resize = (memory: string) =>
  api.call('ResizePod', { pod: { uid: running.uid }, containers: { app: { limits: { memory } } } });
const read = (file: string): number => Number(running.read(file, 'app')) / MiB;

describe('A8: a limit below anonymous memory', () => {
  test('KEP-1287: a limit below anonymous memory is applied if the container may swap, and nothing is killed', async () => {
    await pod('max', 120);
    await resize('64Mi');
    expect([read('memory.max'), Number(running.read('memory.max')) / MiB]).toEqual([64, 64]);
    expect(read('memory.swap.current')).toBeGreaterThan(50);
    await tenant.run('nothing');
    expect(running.oomKills()).toBe(0);
    await cri.updateContainer(running.id('app'), {
      memory_limit_in_bytes: 48 * MiB,
      unified: { 'memory.swap.max': 'max' },
    });
    expect(read('memory.max')).toBe(48);
    await tenant.run('nothing');
    expect(running.oomKills()).toBe(0);
  });

  test('KEP-1287: a limit below anonymous memory is rejected if the update takes away the swap in use, and nothing is killed', async () => {
    await pod('max', 120);
    await resize('64Mi');
    const [inSwap, inUse] = [read('memory.swap.current'), read('memory.current')];
    expect([inSwap > 50, inUse < 80, inSwap + inUse > 100]).toEqual([true, true, true]);
    // kubelet does this if the new request equals the limit.
    const resources = { memory_limit_in_bytes: 60 * MiB, unified: { 'memory.swap.max': '0' } };
    const { message } = await refusal(cri.updateContainer(running.id('app'), resources));
    expect(message).toMatch(/memory.max cannot be lowered .*, and \d+ in swap above its limit,/);
    expect([read('memory.max'), running.read('memory.swap.max', 'app')]).toEqual([64, 'max']);
    await tenant.run('nothing');
    expect(running.oomKills()).toBe(0);
  });

  test('KEP-1287: a limit below anonymous memory is rejected if the container may not swap', async () => {
    await pod('0', 120);
    expect(await refusal(resize('64Mi'))).toMatchObject({ code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(read('memory.max')).toBe(512);
    await tenant.run('nothing');
  });

  test('KEP-1287: a limit below anonymous memory is rejected if the swap of the node is too small', async () => {
    await pod('max', 400);
    const { reason, message } = await refusal(resize('64Mi'));
    expect(reason).toBe('MEMORY_NOT_RECLAIMABLE');
    expect(message).toContain('that fit into swap');
    expect(read('memory.max')).toBe(512);
    await resize('256Mi');
    expect(read('memory.max')).toBe(256);
    await tenant.run('nothing');
    expect(running.oomKills()).toBe(0);
  });
});
