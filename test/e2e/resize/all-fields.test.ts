import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { Served } from '../../support/e2e/served.ts';
import type { ResizeClient } from '../../support/resize-api/client.ts';

/**
 * Swap and unified keys of a container, with the runtime and the kernel of the node. Its containerd, which runs in the
 * root cgroup, ignores CRI's own field for swap. User Mode Linux has no cpuset and no hugetlb controller;
 * test/stock-kernel tests those.
 */

const text = (mebibytes: number): string => String(mebibytes * MiB);

let served: Served;
let cri: CriClient;
let api: ResizeClient;
const direct = new CriClient('unix:///run/containerd/containerd.sock');
let running: RunningPod;

beforeAll(async () => {
  served = await Served.start({ name: 'all-fields', listen: 'unix:///run/all-fields-test/cri.sock', args: [] });
  ({ cri, api } = served);
});
afterEach(() => running.remove());
afterAll(async () => {
  direct.close();
  await served.stop();
});

async function pod(resources: object): Promise<void> {
  running = await runPod(cri, {
    name: 'fields',
    containers: [{ name: 'app', command: ['sleep', '1000000'], resources }],
  });
}

const FILES = ['memory.max', 'memory.swap.max', 'memory.high', 'memory.low', 'memory.oom.group'];
const found = (): string[] => FILES.map((file) => running.read(file, 'app'));
const resize = (memory: string) =>
  api.call('ResizePod', { pod: { uid: running.uid }, containers: { app: { limits: { memory } } } });

describe('A8: a ResizePod', () => {
  test('KEP-1287: a ResizePod keeps the swap limit that kubelet has set by a key of unified', async () => {
    await pod({ memory_limit_in_bytes: 64 * MiB, unified: { 'memory.swap.max': text(16), 'memory.oom.group': '1' } });
    await resize('128Mi');
    expect(found()).toEqual([text(128), text(16), 'max', '0', '1']);
    await resize('48Mi');
    expect(found()).toEqual([text(48), text(16), 'max', '0', '1']);
  });

  test('KEP-1287: a ResizePod keeps a newer value that another program has written to a file', async () => {
    await pod({ memory_limit_in_bytes: 64 * MiB, unified: { 'memory.low': text(8) } });
    writeFileSync(join(running.containerCgroup('app'), 'memory.low'), text(12));
    await resize('128Mi');
    expect(running.read('memory.low', 'app')).toBe(text(12));
  });
});

describe('a quota below the burst, which the kernel rejects (koordinator 2778)', () => {
  const burst = (): string[] => [running.read('cpu.max.burst'), running.read('cpu.max.burst', 'app')];
  const cpuMax = (): string[] => [running.read('cpu.max'), running.read('cpu.max', 'app')];
  const linux = { cpu_quota: 50_000, cpu_period: 100_000 };
  async function bursting(unified?: object): Promise<void> {
    await pod({ ...linux, ...(unified && { unified }) });
    for (const folder of [running.cgroup, running.containerCgroup('app')])
      writeFileSync(join(folder, 'cpu.max.burst'), '40000');
  }
  const resize = (cpu: string) =>
    api.call('ResizePod', {
      pod: { uid: running.uid },
      resources: { limits: { cpu } },
      containers: { app: { limits: { cpu } } },
    });

  test.each([undefined, { 'cpu.max.burst': '40000' }])(
    'ResizePod lowers the burst of pod and container with the quota, and a raise does not restore it (the runtime stores %j)',
    async (unified) => {
      await bursting(unified);
      await resize('200m');
      expect([cpuMax(), burst()]).toEqual([
        ['20000 100000', '20000 100000'],
        ['20000', '20000'],
      ]);
      await resize('500m');
      expect([cpuMax(), burst()]).toEqual([
        ['50000 100000', '50000 100000'],
        ['20000', '20000'],
      ]);
    },
  );

  test('ResizePod lowers a burst that another program has raised, and keeps one that fits into the quota', async () => {
    await bursting({ 'cpu.max.burst': '20000' });
    await resize('300m');
    expect([cpuMax(), burst()]).toEqual([
      ['30000 100000', '30000 100000'],
      ['30000', '30000'],
    ]);
    writeFileSync(join(running.containerCgroup('app'), 'cpu.max.burst'), '5000');
    await resize('100m');
    expect([running.read('cpu.max', 'app'), burst()]).toEqual(['10000 100000', ['10000', '5000']]);
  });

  test('an update of the pod that also sets the burst applies the burst as set', async () => {
    await bursting();
    const unified = { 'cpu.max.burst': '10000' };
    await cri.updatePod(running.sandboxId, { cpu_quota: 20_000, cpu_period: 100_000, unified });
    expect([running.read('cpu.max'), running.read('cpu.max.burst')]).toEqual(['20000 100000', '10000']);
  });

  test('updates of a container and of a pod lower their burst to the new quota', async () => {
    await bursting();
    await cri.updateContainer(running.id('app'), { cpu_quota: 30_000, cpu_period: 100_000 });
    expect([cpuMax(), burst()]).toEqual([
      ['30000 100000', '30000 100000'],
      ['30000', '30000'],
    ]);
    await cri.updatePod(running.sandboxId, { cpu_quota: 20_000, cpu_period: 100_000 });
    expect([running.read('cpu.max'), burst()]).toEqual(['20000 100000', ['20000', '30000']]);
  });

  test('the rollback of a failed update restores the burst', async () => {
    await bursting();
    const update = cri.updateContainer(running.id('app'), {
      cpu_quota: 20_000,
      cpu_period: 100_000,
      unified: { 'memory.nonsense': '1' },
    });
    await expect(update).rejects.toMatchObject({ details: expect.stringContaining('memory.nonsense') as string });
    expect([cpuMax(), burst()]).toEqual([
      ['50000 100000', '50000 100000'],
      ['40000', '40000'],
    ]);
  });
});

describe('A8: an update by a caller', () => {
  test('KEP-1287: an update that the runtime rejects midway is rolled back in every field', async () => {
    await pod({ memory_limit_in_bytes: 64 * MiB, unified: { 'memory.swap.max': text(32) } });
    const before = found();
    const update = cri.updateContainer(running.id('app'), {
      memory_limit_in_bytes: 128 * MiB,
      unified: { 'memory.high': text(100), 'memory.low': '16M', 'memory.nonsense': '1' },
    });
    await expect(update).rejects.toMatchObject({ details: expect.stringContaining('memory.nonsense') as string });
    expect(found()).toEqual(before);
    expect(running.read('memory.max')).toBe(text(64));
  });

  test('KEP-1287: an update of memory limit, swap and unified keys is applied, and the next ResizePod keeps the values', async () => {
    await pod({ memory_limit_in_bytes: 64 * MiB });
    await cri.updateContainer(running.id('app'), {
      memory_limit_in_bytes: 96 * MiB,
      unified: { 'memory.swap.max': text(32), 'memory.high': text(80), 'memory.low': '16M', 'memory.oom.group': '1' },
    });
    expect(found()).toEqual([text(96), text(32), text(80), text(16), '1']);
    expect(running.read('memory.max')).toBe(text(96));
    await resize('112Mi');
    expect(found()).toEqual([text(112), text(32), text(80), text(16), '1']);
  });
});

describe('A8: an update of the pod', () => {
  test('KEP-1287: an update of the pod sets its swap limit, and the next update keeps it', async () => {
    await pod({ memory_limit_in_bytes: 64 * MiB });
    await cri.updatePod(running.sandboxId, {
      memory_limit_in_bytes: 128 * MiB,
      memory_swap_limit_in_bytes: 160 * MiB,
    });
    expect([running.read('memory.max'), running.read('memory.swap.max')]).toEqual([text(128), text(32)]);
    await cri.updatePod(running.sandboxId, { memory_limit_in_bytes: 96 * MiB });
    expect([running.read('memory.max'), running.read('memory.swap.max')]).toEqual([text(96), text(32)]);
  });

  test.each([
    ['cpuset.cpus', { cpuset_cpus: '0' }],
    ['cpuset.mems', { cpuset_mems: '0' }],
    ['hugetlb.2MB.max', { hugepage_limits: [{ page_size: '2MB', limit: 4 * MiB }] }],
  ])(
    'KEP-1287: an update of the pod that needs %s is rejected on a kernel without the controller, and changes nothing',
    async (file, fields) => {
      await pod({ memory_limit_in_bytes: 64 * MiB });
      const update = cri.updatePod(running.sandboxId, { memory_limit_in_bytes: 128 * MiB, ...fields });
      const why = `the kernel has no ${file}, or the cgroup above does not enable the controller`;
      await expect(update).rejects.toMatchObject({ code: 3, details: expect.stringContaining(why) as string });
      expect(running.read('memory.max')).toBe(text(64));
    },
  );
});
