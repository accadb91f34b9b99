import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { readContainerStatus } from '../../../src/runtime/container-status.ts';
import { kernelResources } from '../../../src/sandbox/pods/kernel-resources.ts';
import { containerId, FakeRuntime } from '../../support/fake-runtime.ts';

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

describe('kernelResources', () => {
  const resourcesOf = async (id: string, reported: Parameters<typeof kernelResources>[2]) => {
    const cgroup = await runtime.node.cgroups.find(id);
    return kernelResources(runtime.node.tree, cgroup!, reported);
  };

  const stored = (resources: object) => {
    const response = encode('ContainerStatusResponse', { status: { resources: { linux: resources } } });
    return readContainerStatus(response).resources;
  };

  test.each([
    [
      'equal values',
      { memory_limit_in_bytes: BigInt(100 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 102n },
      undefined,
    ],
    [
      'shares whose weight is by the other formula',
      { memory_limit_in_bytes: BigInt(100 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 10n },
      undefined,
    ],
    [
      'a limit that the kernel rounds to a page',
      { memory_limit_in_bytes: BigInt(100 * MiB + 4000), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 102n },
      undefined,
    ],
    [
      'another memory limit',
      { memory_limit_in_bytes: BigInt(64 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n, cpu_shares: 102n },
      { memory_limit_in_bytes: 100 * MiB },
    ],
    [
      'another quota',
      { memory_limit_in_bytes: BigInt(100 * MiB), cpu_quota: 5000n, cpu_period: 100_000n, cpu_shares: 102n },
      { cpu_quota: 10_000, cpu_period: 100_000 },
    ],
  ])('returns only the values that differ from those of the runtime: %s', async (_name, reported, expected) => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    expect(await resourcesOf(containerId(0), stored(reported))).toEqual(expected);
  });

  test('adds memory to the swap limit if the runtime stores a swap limit', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    const cgroup = `/kubepods/pod1/${containerId(0)}`;
    const files = { 'memory.max': String(100 * MiB), 'cpu.max': '10000 100000', 'cpu.weight': '4' };
    const linux = {
      memory_limit_in_bytes: BigInt(100 * MiB),
      cpu_quota: 10_000n,
      cpu_period: 100_000n,
      cpu_shares: 102n,
    };
    const given = stored({ ...linux, memory_swap_limit_in_bytes: BigInt(100 * MiB) });
    runtime.writeCgroup(cgroup, { ...files, 'memory.swap.max': '0' });
    expect(await resourcesOf(containerId(0), given)).toBeUndefined();
    runtime.writeCgroup(cgroup, { ...files, 'memory.swap.max': String(28 * MiB) });
    expect(await resourcesOf(containerId(0), given)).toEqual({
      memory_swap_limit_in_bytes: 128 * MiB,
    });
    expect(await resourcesOf(containerId(0), stored(linux))).toBeUndefined();
  });

  test('returns -1 for a removed limit, and nothing if no limit was ever set', async () => {
    runtime.makePod('max', [100 * MiB]);
    runtime.writeCgroup(`/kubepods/pod1/${containerId(0)}`, {
      'memory.max': 'max',
      'cpu.max': 'max 100000',
      'cpu.weight': '100',
    });
    const changed = stored({ memory_limit_in_bytes: 5000n, cpu_quota: 5000n, cpu_period: 100_000n });
    expect(await resourcesOf(containerId(0), changed)).toEqual({
      cpu_period: 100_000,
      cpu_quota: -1,
      memory_limit_in_bytes: -1,
    });
    expect(await resourcesOf(containerId(0), stored({}))).toBeUndefined();
  });
});
