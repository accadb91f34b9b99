import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encode } from '../../../src/runtime/codec.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate, podConfig } from '../../support/fake-runtime.ts';

// systemd stores quotas in whole percents of a CPU, and writes them whenever a property of the unit changes or it
// reloads.
const POD = '/kubepods.slice/kubepods-pod1.slice';
const SCOPE = `${POD}/cri-containerd-${containerId(0)}.scope`;
const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
/** The quotas that the shim has asked the runtime for. */
let asked: (bigint | undefined)[];
let storedMemory: bigint;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.describePod({ config: { ...podConfig, linux: { ...podConfig.linux, cgroup_parent: POD } } });
  runtime.writeCgroup('/kubepods.slice', { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '100' });
  for (const cgroup of [POD, SCOPE])
    runtime.writeCgroup(cgroup, { 'memory.max': String(100 * MiB), 'cpu.max': '13000 100000', 'cpu.weight': '39' });
  mkdirSync(join(runtime.procRoot, '100'), { recursive: true });
  writeFileSync(join(runtime.procRoot, '100/cgroup'), `0::${SCOPE}\n`);
  asked = [];
  storedMemory = BigInt(100 * MiB);
  runtime.on('UpdateContainerResources', (request) => {
    const { linux } = runtime.decodeUpdate(request);
    asked.push(linux?.cpu_quota);
    if (linux?.cpu_quota) writeQuota(Number(linux.cpu_quota));
    if (linux?.memory_limit_in_bytes) storedMemory = linux.memory_limit_in_bytes;
    return Buffer.alloc(0);
  });
  stores(12_500);
});
afterEach(() => runtime.close());

const writeQuota = (quota: number): void => runtime.writeFile(SCOPE, 'cpu.max', `${quota} 100000`);
const quota = (): string => readFileSync(join(runtime.cgroupRoot, SCOPE, 'cpu.max'), 'utf8').trim();

function stores(cpu_quota: number): void {
  runtime.on('ContainerStatus', () =>
    encode('ContainerStatusResponse', {
      status: {
        id: containerId(0),
        metadata: { name: 'c0' },
        state: 1,
        resources: {
          linux: { cpu_quota: BigInt(cpu_quota), cpu_period: 100_000n, memory_limit_in_bytes: storedMemory },
        },
      },
      info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 }) },
    }),
  );
}

const cpuset = (written: number) =>
  updateContainer(runtime.node, containerUpdate(containerId(0), { cpuset_cpus: '0-1' }), () => {
    writeQuota(written);
    return Promise.resolve(ANSWER);
  });

describe('A11: a quota that systemd has rounded', () => {
  test('does not request a quota rounded by systemd after a cpuset-only update wrote the exact quota', async () => {
    expect(await cpuset(12_500)).toBe(ANSWER);
    expect([asked, quota()]).toEqual([[], '12500 100000']);
  });

  test('restores a quota that differs from the stored one by more than the rounding of systemd', async () => {
    writeQuota(14_000);
    await cpuset(12_500);
    expect([asked, quota()]).toEqual([[14_000n], '14000 100000']);
  });

  test('a failed update restores the stored quota, not the one that systemd rounded', async () => {
    const linux = { memory_limit_in_bytes: BigInt(200 * MiB), cpu_quota: 20_000n, cpu_period: 100_000n };
    const failing = updateContainer(runtime.node, containerUpdate(containerId(0), linux), () => {
      writeQuota(20_000);
      return Promise.reject(new Error('deadline exceeded'));
    });
    await expect(failing).rejects.toThrow('deadline exceeded');
    expect([asked, quota()]).toEqual([[12_500n], '12500 100000']);
  });

  test('a failed ResizePod restores the stored quota, not the one that systemd rounded', async () => {
    runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
    // It accepts everything, and sets the CPU limit alone.
    const cpu = { quota: 20_000, period: 100_000 } as never;
    const desired = { pod: {}, containers: new Map([['c0', { cpu, memory: bytes(200 * MiB) }]]), volumes: new Map() };
    const resize = resizePod(runtime.node, SANDBOX, desired, {
      dryRun: false,
      deadline: performance.now() + 60_000,
    });
    await expect(resize).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect([asked, quota()]).toEqual([[20_000n, 12_500n], '12500 100000']);
  });
});
