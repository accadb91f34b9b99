import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { CgroupTree } from '../../../src/cgroups/tree.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { limitsAbove, memorySizes, nodeAllocatable, nodeSize } from '../../../src/sandbox/admission/node-room.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { Amounts } from '../../../src/sandbox/pods/declared-pod.ts';

const pod = { cgroupParent: '/a/b/podu' } as PodDescription;
type LiveLimits = ReturnType<CgroupTree['readLimitsNow']>;
const period = microseconds(100_000);
const NONE = { memoryMax: 'max', cpuMax: { quota: 'max', period } } as unknown as LiveLimits;

let procRoot: string;
beforeEach(() => {
  procRoot = mkdtempSync(join(tmpdir(), 'proc-'));
  writeFileSync(join(procRoot, 'meminfo'), 'MemTotal:       1000 kB\nMemFree:        1 kB\n');
  writeFileSync(join(procRoot, 'stat'), 'cpu  1 2\ncpu0 1 2\ncpu12 1 2\nintr 5 cpu3 \n');
});
afterEach(() => rmSync(procRoot, { recursive: true }));

/** Limits of the cgroups above the pod's. The pod's own are never read. */
const parts = (limits: Readonly<Record<string, LiveLimits>> = {}, inApi?: Amounts) => ({
  tree: {
    readLimitsNow: (cgroup: string): LiveLimits => {
      if (cgroup === '/a/b/podu') throw new Error('the pod itself');
      return limits[cgroup] ?? NONE;
    },
  } as Pick<CgroupTree, 'readLimitsNow'>,
  allocatable: { amounts: () => inApi },
  procRoot,
});
const limited = (memory: number, quota: number): LiveLimits =>
  ({ memoryMax: bytes(memory), cpuMax: { quota: microseconds(quota), period } }) as unknown as LiveLimits;

test('nodeSize returns the memory and the online CPUs of the node, without values that cannot be read', () => {
  expect(nodeSize(procRoot)).toEqual({ memory: 1_024_000, milliCpu: 2000 });
  rmSync(join(procRoot, 'stat'));
  expect(nodeSize(procRoot)).toEqual({ memory: 1_024_000 });
  rmSync(join(procRoot, 'meminfo'));
  expect(nodeSize(procRoot)).toEqual({});
});

test('limitsAbove returns the finite limits of each cgroup that contains the pod', () => {
  const noCpu = { memoryMax: bytes(7) } as unknown as LiveLimits;
  const above = limitsAbove(parts({ '/a': noCpu, '/a/b': limited(5, 150_000) }).tree, pod);
  expect(above.memory.map(({ cgroup, amount, source }) => [cgroup, amount, source])).toEqual([
    ['/a', 7, 'cgroup /a allows no more'],
    ['/a/b', 5, 'cgroup /a/b allows no more'],
  ]);
  expect(above.milliCpu.map(({ cgroup, amount }) => [cgroup, amount])).toEqual([['/a/b', 1500]]);
  expect(limitsAbove(parts().tree, pod)).toEqual({ memory: [], milliCpu: [] });
  const counted = limitsAbove(parts({ '/a/b': limited(5, 150_000) }).tree, pod, (cgroup) => cgroup !== '/a');
  expect(counted.memory.map(({ cgroup }) => cgroup)).toEqual(['/a/b']);
});

describe('the allocatable resources of the node', () => {
  test('the allocatable amount is that of the API server, or otherwise the size of the node', () => {
    expect(nodeAllocatable(parts(), pod)).toEqual({
      memory: { amount: 1_024_000, source: 'the node has no more' },
      milliCpu: { amount: 2000, source: 'the node has no more' },
    });
    expect(nodeAllocatable(parts({}, { memory: bytes(9) }), pod)).toEqual({
      memory: { amount: 9, source: "the node's allocatable" },
    });
  });

  test('the allocatable amount is the lowest limit above the pod, if that is less than the node has', () => {
    const found = nodeAllocatable(parts({ '/a': limited(7, 190_000), '/a/b': limited(8, 150_000) }), pod);
    expect([found.memory?.amount, found.milliCpu?.amount]).toEqual([7, 1500]);
    const loose = nodeAllocatable(parts({ '/a': limited(2e6, 250_000) }), pod);
    expect([loose.memory?.source, loose.milliCpu?.source]).toEqual(Array(2).fill('the node has no more'));
  });

  test('without the size of the node, the allocatable amount is a limit above the pod, or unknown', () => {
    rmSync(join(procRoot, 'stat'));
    rmSync(join(procRoot, 'meminfo'));
    expect(nodeAllocatable(parts({ '/a': limited(7, 150_000) }), pod)).toMatchObject({
      memory: { amount: 7 },
      milliCpu: { amount: 1500 },
    });
    expect(nodeAllocatable(parts(), pod)).toEqual({});
  });
});

test('memorySizes lists the limits above the pod from low to high, then the API server, then the node', () => {
  expect(memorySizes(parts({ '/a': limited(9, 1000), '/a/b': limited(8, 1000) }, { memory: bytes(5) }), pod)).toEqual([
    8, 9, 5, 1_024_000,
  ]);
  expect(memorySizes(parts({ '/a': limited(8, 1000), '/a/b': limited(9, 1000) }), pod)).toEqual([8, 9, 1_024_000]);
});
