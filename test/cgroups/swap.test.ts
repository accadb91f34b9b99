import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { isCgroupVanished } from '../../src/cgroups/file.ts';
import { usageText } from '../../src/cgroups/memory-use.ts';
import { CgroupTree } from '../../src/cgroups/tree.ts';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';

/** A folder replaces the cgroup file system. test/e2e/resize/swap.test.ts uses the kernel. */

const POD = '/kubepods/pod1';
let root: string;
let proc: string;
let tree: CgroupTree;

interface Files {
  /** Anonymous pages in MiB: on the anonymous lists, and locked. */
  readonly anon: number;
  readonly locked?: number;
  readonly swapMax?: number | 'max';
  readonly swapUsed?: number;
  readonly swapHigh?: number;
  readonly writeback?: string;
}

const size = (mebibytes: number | 'max'): string => (mebibytes === 'max' ? 'max' : String(mebibytes * MiB));

function cgroup(path: string, { anon, locked = 0, swapMax, swapUsed = 0, swapHigh, writeback }: Files): void {
  mkdirSync(join(root, path), { recursive: true });
  const put = (file: string, text: string): void => writeFileSync(join(root, path, file), `${text}\n`);
  put('memory.current', size(anon + locked + 10));
  put('memory.events', 'oom_kill 0');
  const lists = `active_anon ${anon * MiB}\ninactive_anon 0\nunevictable ${locked * MiB}`;
  put('memory.stat', `anon ${(anon + locked) * MiB}\nfile ${10 * MiB}\nshmem 0\n${lists}`);
  if (swapMax !== undefined) {
    put('memory.swap.max', size(swapMax));
    put('memory.swap.current', size(swapUsed));
  }
  if (swapHigh !== undefined) put('memory.swap.high', size(swapHigh));
  if (writeback !== undefined) put('memory.zswap.writeback', writeback);
}

function node(swapFree: number | undefined, swappiness = '60'): void {
  mkdirSync(join(proc, 'sys/vm'), { recursive: true });
  const swap = swapFree === undefined ? '' : `SwapTotal:  9999999 kB\nSwapFree:  ${swapFree * 1024} kB\n`;
  writeFileSync(join(proc, 'meminfo'), `MemTotal:  16000000 kB\n${swap}Dirty:  0 kB\n`);
  writeFileSync(join(proc, 'sys/vm/swappiness'), `${swappiness}\n`);
}

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'swap-'));
  proc = join(root, 'proc');
  tree = new CgroupTree(root, proc);
  cgroup('/kubepods', { anon: 500, swapMax: 'max' });
  cgroup(POD, { anon: 100, swapMax: 'max' });
  cgroup(`${POD}/c1`, { anon: 100, swapMax: 'max' });
  node(1000);
});
afterEach(() => rmSync(root, { recursive: true }));

const useOf = async (path: string): Promise<{ unreclaimable: number; swappable: number }> => {
  const { unreclaimable, swappable } = await tree.readMemoryUse(path);
  return { unreclaimable: unreclaimable / MiB, swappable: swappable / MiB };
};

describe('usage with lower limits on swap', () => {
  const useWith = async (path: string, limits: Readonly<Record<string, number>>) => {
    const after = new Map(Object.entries(limits).map(([cgroup, limit]) => [cgroup, bytes(limit * MiB)]));
    const { unreclaimable, swappable, swapExcess } = await tree.readMemoryUse(path, after);
    return [unreclaimable / MiB, swappable / MiB, swapExcess / MiB];
  };

  test('usage excludes memory that fits into swap, includes swap above its limit, and its text names both', async () => {
    cgroup(`${POD}/c1`, { anon: 100, swapMax: 50, swapUsed: 20 });
    const use = await tree.readMemoryUse(`${POD}/c1`);
    expect([use.unreclaimable / MiB, use.swapExcess]).toEqual([70, 0]);
    expect(usageText(use)).toMatch(/, less 31457280 that fit into swap$/);
    const without = await tree.readMemoryUse(`${POD}/c1`, new Map([[`${POD}/c1`, bytes(0)]]));
    expect([without.unreclaimable / MiB, without.swappable]).toEqual([120, 0]);
    expect(usageText(without)).toMatch(/unevictable 0, and 20971520 in swap above its limit$/);
  });

  test.each<[string, number, number[]]>([
    ['a limit above the memory in swap leaves the difference', 35, [85, 15, 0]],
    ['a limit below the memory in swap leaves nothing, and the difference returns to memory', 5, [115, 0, 15]],
    ['a higher limit counts as the present limit, because it is set after the reclaim', 80, [70, 30, 0]],
  ])('usage with a requested swap limit: %s', async (_, limit, expected) => {
    cgroup(`${POD}/c1`, { anon: 100, swapMax: 50, swapUsed: 20 });
    expect(await useWith(`${POD}/c1`, { [`${POD}/c1`]: limit })).toEqual(expected);
    // The limit of another cgroup changes nothing.
    expect(await useWith(`${POD}/c1`, { [`${POD}/c2`]: 0 })).toEqual([70, 30, 0]);
  });

  test('usage includes swapped memory above a swap limit that was lowered earlier', async () => {
    cgroup(`${POD}/c1`, { anon: 100, swapMax: 5, swapUsed: 20 });
    expect(await useWith(`${POD}/c1`, {})).toEqual([115, 0, 15]);
  });

  test('usage of a pod includes swap that returns to its containers, and at least the swap that returns to the pod', async () => {
    cgroup(POD, { anon: 100, swapMax: 'max', swapUsed: 40 });
    cgroup(`${POD}/c1`, { anon: 60, swapMax: 'max', swapUsed: 25 });
    cgroup(`${POD}/c2`, { anon: 40, swapMax: 'max', swapUsed: 15 });
    expect(await useWith(POD, { [`${POD}/c1`]: 0 })).toEqual([60 + 25, 40, 25]);
    expect(await useWith(POD, { [`${POD}/c1`]: 0, [`${POD}/c2`]: 0 })).toEqual([140, 0, 40]);
    expect(await useWith(POD, { [POD]: 10 })).toEqual([130, 0, 30]);
    expect(await useWith(POD, { [POD]: 30, [`${POD}/c1`]: 0 })).toEqual([125, 0, 25]);
  });

  test('usage excludes swap on a kernel without swap accounting', async () => {
    rmSync(join(root, POD, 'c1/memory.swap.max'));
    rmSync(join(root, POD, 'c1/memory.swap.current'));
    expect(await useWith(`${POD}/c1`, { [`${POD}/c1`]: 0 })).toEqual([100, 0, 0]);
  });
});

/** Linux 5.19 and later charge compressed pages as kernel memory: memory.current, and `kernel` of memory.stat. */
describe('memory that zswap has compressed', () => {
  const compressed = (files: Files & { readonly zswap: number; readonly zswapped: number; readonly max?: string }) => {
    const { anon, zswap, zswapped, max } = files;
    cgroup(`${POD}/c1`, files);
    const put = (file: string, text: string): void => writeFileSync(join(root, POD, 'c1', file), `${text}\n`);
    const lines = { anon, active_anon: anon, inactive_anon: 0, unevictable: 0, kernel: zswap, zswap, zswapped };
    put(
      'memory.stat',
      Object.entries(lines)
        .map(([key, value]) => `${key} ${value * MiB}`)
        .join('\n'),
    );
    if (max !== undefined) put('memory.zswap.max', max);
    return (limit?: number) => {
      const after = limit === undefined ? undefined : new Map([[`${POD}/c1`, bytes(limit * MiB)]]);
      return tree.readMemoryUse(`${POD}/c1`, after);
    };
  };
  const inMiB = ({ unreclaimable, swappable, swapExcess }: Awaited<ReturnType<ReturnType<typeof compressed>>>) => [
    unreclaimable / MiB,
    swappable / MiB,
    swapExcess / MiB,
  ];

  test('KEP-1287: memory compressed by zswap is in use, and memory that fits into zswap frees only the bytes that compression saves', async () => {
    const use = compressed({ anon: 100, swapMax: 'max', swapUsed: 40, zswap: 10, zswapped: 40 });
    // The compressed size is a quarter: 100 MiB would need 25 MiB in addition to the present 10 MiB.
    expect(inMiB(await use())).toEqual([35, 75, 0]);
  });

  test('zswap frees no memory if compression saves nothing', async () => {
    const use = compressed({ anon: 100, swapMax: 'max', swapUsed: 40, zswap: 44, zswapped: 40 });
    expect(inMiB(await use())).toEqual([144, 0, 0]);
  });

  test('zswap grows up to memory.zswap.max, and further pages go to the device', async () => {
    const files = { anon: 100, swapMax: 'max', swapUsed: 40, zswap: 10, zswapped: 40 } as const;
    expect(inMiB(await compressed({ ...files, max: String(22 * MiB) })())).toEqual([22, 88, 0]);
    expect(inMiB(await compressed({ ...files, max: String(8 * MiB) })())).toEqual([10, 100, 0]);
    expect(inMiB(await compressed({ ...files, max: 'max' })())).toEqual([35, 75, 0]);
  });

  test('memory that returns from zswap counts once, because its compressed pages are freed', async () => {
    const use = compressed({ anon: 60, swapMax: 'max', swapUsed: 40, zswap: 10, zswapped: 40 });
    expect(inMiB(await use(0))).toEqual([60 + 40, 0, 30]);
  });

  test('memory that returns from zswap frees at most its own size if compression makes pages larger', async () => {
    const use = compressed({ anon: 60, swapMax: 'max', swapUsed: 40, zswap: 44, zswapped: 40 });
    expect(inMiB(await use(0))).toEqual([60 + 44, 0, 0]);
  });

  test('memory that returns from swap frees zswap only for the part that cannot be on the device', async () => {
    const use = compressed({ anon: 60, swapMax: 'max', swapUsed: 40, zswap: 5, zswapped: 20 });
    // 15 MiB return to memory, and 20 MiB are on the device.
    expect(inMiB(await use(25))).toEqual([60 + 5 + 15, 0, 15]);
    // 30 MiB return to memory. At least 10 MiB of them are half of the compressed memory.
    expect(inMiB(await use(10))).toEqual([60 + 5 + 30 - 2.5, 0, 27.5]);
  });
});

describe('memory that fits into swap', () => {
  test.each<[string, () => void, number]>([
    ['all anonymous memory if swap is free', () => undefined, 100],
    ['nothing on a node without swap', () => node(0), 0],
    ['nothing on a kernel without swap', () => node(undefined), 0],
    ['nothing with swappiness 0', () => node(1000, '0'), 0],
    ['no more than the free swap of the node', () => node(30), 30],
    ['nothing for a container that must not swap', () => cgroup(`${POD}/c1`, { anon: 100, swapMax: 0 }), 0],
    ['the free part of its limit', () => cgroup(`${POD}/c1`, { anon: 100, swapMax: 50, swapUsed: 20 }), 30],
    ['nothing if its limit is reached', () => cgroup(`${POD}/c1`, { anon: 100, swapMax: 50, swapUsed: 50 }), 0],
    ['the free part of its pod limit', () => cgroup(POD, { anon: 100, swapMax: 64, swapUsed: 24 }), 40],
    ['the free part of the limit of kubepods', () => cgroup('/kubepods', { anon: 500, swapMax: 64, swapUsed: 44 }), 20],
    ['no more than memory.swap.high', () => cgroup(`${POD}/c1`, { anon: 100, swapMax: 'max', swapHigh: 25 }), 25],
    [
      'nothing without writeback from zswap',
      () => cgroup('/kubepods', { anon: 500, swapMax: 'max', writeback: '0' }),
      0,
    ],
    ['no locked memory', () => cgroup(`${POD}/c1`, { anon: 70, locked: 30, swapMax: 'max' }), 70],
  ])('memory of a container that fits into swap: %s', async (_, change, swappable) => {
    change();
    expect(await useOf(`${POD}/c1`)).toEqual({ unreclaimable: 100 - swappable, swappable });
  });

  test('no memory fits into swap on a kernel without swap accounting', async () => {
    rmSync(join(root, POD, 'c1/memory.swap.max'));
    expect(await useOf(`${POD}/c1`)).toEqual({ unreclaimable: 100, swappable: 0 });
  });

  test('KEP-1287: memory of a pod that fits into swap is the sum for its containers and for memory outside of containers', async () => {
    cgroup(POD, { anon: 100, swapMax: 'max' });
    cgroup(`${POD}/c1`, { anon: 40, swapMax: 0 });
    cgroup(`${POD}/c2`, { anon: 30, swapMax: 30, swapUsed: 20 });
    cgroup(`${POD}/c3`, { anon: 20, swapMax: 'max' });
    cgroup(`${POD}/c3/inner`, { anon: 15, swapMax: 5 });
    // 10 MiB of c2, 5 and 5 MiB of c3, and 10 MiB that belong to the pod itself.
    expect(await useOf(POD)).toEqual({ unreclaimable: 70, swappable: 30 });
    mkdirSync(join(root, POD, 'c4'));
    expect(await useOf(POD)).toEqual({ unreclaimable: 70, swappable: 30 });
  });

  test('the memory use of a removed cgroup is an error', async () => {
    await expect(tree.readMemoryUse(`${POD}/c9`)).rejects.toSatisfy(isCgroupVanished);
  });

  test('KEP-1287: memory that fits into swap exceeds neither anonymous memory nor the free swap of container, pod and node', async () => {
    const mebibytes = fc.integer({ min: 0, max: 200 });
    const limit = fc.oneof(mebibytes, fc.constant('max' as const));
    const cases = fc.tuple(mebibytes, limit, limit, mebibytes, mebibytes);
    await fc.assert(
      fc.asyncProperty(cases, async ([anon, ofPod, ofContainer, used, onNode]) => {
        cgroup(POD, { anon, swapMax: ofPod, swapUsed: used });
        cgroup(`${POD}/c1`, { anon, swapMax: ofContainer, swapUsed: used });
        node(onNode);
        const left = (most: number | 'max'): number => (most === 'max' ? Infinity : Math.max(0, most - used));
        const swappable = Math.min(anon, left(ofPod), left(ofContainer), onNode);
        const above = (most: number | 'max'): number => (most === 'max' ? 0 : Math.max(0, used - most));
        const [container, pod] = [above(ofContainer), Math.max(above(ofContainer), above(ofPod))];
        expect(await useOf(`${POD}/c1`)).toEqual({ unreclaimable: anon - swappable + container, swappable });
        expect(await useOf(POD)).toEqual({ unreclaimable: anon - swappable + pod, swappable });
      }),
      { numRuns: 100 },
    );
  });
});
