import { readFileSync } from 'node:fs';
import { cpus, release } from 'node:os';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { CriClient } from '../support/cri/client.ts';
import { type RunningPod, runPod } from '../support/cri/pod.ts';
import { Served } from '../support/e2e/served.ts';
import { type ResizeClient, refusal } from '../support/resize-api/client.ts';

/** Assumptions of the tests of this folder about their node, and values that depend on its number of processors. */

const read = (path: string): string => readFileSync(path, 'utf8').trim();

test("the node has Debian's kernel with its controllers, swap, pressure and huge pages", () => {
  expect(release()).toMatch(/\+deb\d+-cloud-amd64$/);
  for (const group of ['', '/kubepods', '/kubepods/burstable', '/kubepods/besteffort'])
    expect(read(`/sys/fs/cgroup${group}/cgroup.subtree_control`).split(' ')).toEqual(
      expect.arrayContaining(['cpu', 'cpuset', 'hugetlb', 'io', 'memory', 'pids']),
    );
  expect(read('/proc/swaps')).toContain('/dev/vda');
  expect(read('/proc/pressure/memory')).toMatch(/^some avg10=/);
  expect(read('/proc/meminfo')).toMatch(/^HugePages_Total:\s+32$/m);
  expect(cpus()).toHaveLength(2);
});

describe('a node with two processors', () => {
  let served: Served;
  let cri: CriClient;
  let api: ResizeClient;
  let running: RunningPod;
  beforeAll(async () => {
    served = await Served.start({ name: 'processors-test', args: ['--foresight=false'] });
    ({ cri, api } = served);
  });
  afterEach(() => running.remove());
  afterAll(() => served.stop());

  test('a node with two processors accepts a CPU request of 1500m and rejects one of 2500m', async () => {
    const resources = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 50_000, cpu_period: 100_000, cpu_shares: 512 };
    running = await runPod(cri, {
      name: 'cpus',
      containers: [{ name: 'app', command: ['sleep', '1000000'], resources }],
    });
    const resize = (cpu: string) =>
      api.call('ResizePod', {
        pod: { uid: running.uid },
        containers: { app: { limits: { cpu }, requests: { cpu } } },
      });
    await resize('1500m');
    expect([running.read('cpu.max', 'app'), running.read('cpu.max')]).toEqual(['150000 100000', '150000 100000']);
    expect(await refusal(resize('2500m'))).toMatchObject({ reason: 'EXCEEDS_NODE' });
    expect(running.read('cpu.max', 'app')).toBe('150000 100000');
  });
});
