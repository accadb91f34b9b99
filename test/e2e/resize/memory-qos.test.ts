import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { checkpointText } from '../../support/checkpoint-text.ts';
import type { CriClient } from '../../support/cri/client.ts';
import { KUBELET_ROOT, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Kubelet, removeFiles } from '../../support/e2e/kubelet.ts';
import { Served } from '../../support/e2e/served.ts';
import { Tenant } from '../../support/e2e/tenant.ts';
import type { ResizeClient } from '../../support/resize-api/client.ts';

/**
 * Memory QoS as kubelet sets it, with the runtime and the kernel of the node: ResizePod scales the values that kubelet
 * derives from limits and requests.
 */

const text = (mebibytes: number): string => String(mebibytes * MiB);
/** Returns memory.high by kubelet's formula, for amounts in MiB. */
const high = (request: number, limit: number, factor = 0.9): string =>
  String(Math.floor(((request + (limit - request) * factor) * MiB) / 4096) * 4096);
// A file of the host, so that its pages are page cache.
const cached = join(process.env['NODE_OUT'] ?? '', 'cached');
const folder = mkdtempSync(join(tmpdir(), 'memory-qos-'));

let served: Served;
let cri: CriClient;
let api: ResizeClient;
let kubelet: Kubelet;
let running: RunningPod;

beforeAll(async () => {
  closeSync(openSync(cached, 'w'));
  truncateSync(cached, 100 * MiB);
  mkdirSync(KUBELET_ROOT, { recursive: true });
  served = await Served.start({ name: 'memory-qos-test', args: ['--state-folder', folder] });
  ({ cri, api } = served);
  kubelet = new Kubelet(cri);
});
afterEach(() => running.remove());
afterAll(async () => {
  await served.stop();
  removeFiles();
  rmSync(folder, { recursive: true });
  rmSync(cached);
});

/** A pod of a kubelet with memory QoS that requests 64 MiB, with a limit of 128 MiB. */
async function pod(unified: Readonly<Record<string, string>>): Promise<void> {
  const resources = { memory_limit_in_bytes: 128 * MiB, unified: { ...unified } };
  running = await runPod(cri, { name: 'qos', containers: [{ name: 'app', command: ['sleep', '1000000'], resources }] });
  const app = { limits: { memory: '128Mi' }, requests: { memory: '64Mi' } };
  const state = checkpointText({ [running.uid]: { ContainerResources: { app } } });
  for (const name of ['allocated_pods_state', 'actuated_pods_state'] as const) kubelet.replace(name, state);
}
const resize = (limit: number, request?: number) =>
  api.call('ResizePod', {
    pod: { uid: running.uid },
    containers: {
      app: {
        limits: { memory: `${limit}Mi` },
        ...(request !== undefined && { requests: { memory: `${request}Mi` } }),
      },
    },
  });
const found = (): string[] => ['memory.max', 'memory.high', 'memory.low'].map((file) => running.read(file, 'app'));
const NONE = { 'memory.min': '0', 'memory.low': '0' };

describe('A8: memory QoS', () => {
  test('KEP-2570: memory.high follows the limit up, and down below the memory in use', async () => {
    await pod({ 'memory.high': high(64, 128), ...NONE });
    await resize(256);
    expect(found()).toEqual([text(256), high(64, 256), '0']);
    const tenant = await Tenant.in(running.containerCgroup('app'));
    await tenant.run('read', cached);
    expect(Number(running.read('memory.current', 'app'))).toBeGreaterThan(90 * MiB);
    await resize(80);
    await tenant.end();
    expect(found()).toEqual([text(80), high(64, 80), '0']);
    expect(running.oomKills()).toBe(0);
    // The runtime stores the value too, so its next update does not restore the previous one.
    await cri.updateContainer(running.id('app'), { cpu_shares: 512 });
    expect(found()).toEqual([text(80), high(64, 80), '0']);
  });

  test('KEP-2570: memory.low of container and pod follows the memory request', async () => {
    await pod({ 'memory.high': high(64, 128), 'memory.low': text(64) });
    writeFileSync(join(running.cgroup, 'memory.low'), text(64));
    await resize(256, 96);
    expect([...found(), running.read('memory.low')]).toEqual([text(256), high(96, 256), text(96), text(96)]);
    await resize(128, 48);
    expect([...found(), running.read('memory.low')]).toEqual([text(128), high(48, 128), text(48), text(48)]);
  });

  test('KEP-2570: a resize keeps values of memory.high and memory.low that memory QoS does not derive', async () => {
    await pod({ 'memory.high': text(100), 'memory.low': text(10) });
    await resize(256, 96);
    expect(found()).toEqual([text(256), text(100), text(10)]);
  });
});
