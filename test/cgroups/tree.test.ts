import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { CgroupFiles, isCgroupVanished } from '../../src/cgroups/file.ts';
import { CgroupTree, readLoad } from '../../src/cgroups/tree.ts';
import { bytes, cpuWeight, microseconds } from '../../src/core/quantities/numbers.ts';

// A folder replaces the cgroup file system: it accepts every value and rounds nothing. The behavior of the kernel is
// asserted in test/e2e/resize/cgroups.test.ts.
let root: string;
let tree: CgroupTree;

afterEach(() => rmSync(root, { recursive: true }));

describe('limits and usage of a cgroup', () => {
  let pod: string;
  const put = (file: string, content: string): void => writeFileSync(join(pod, file), content);
  const content = (file: string): string => readFileSync(join(pod, file), 'utf8');

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'cgroup-tree-'));
    pod = join(root, 'kubepods/pod1');
    mkdirSync(pod, { recursive: true });
    tree = new CgroupTree(root);
  });

  describe('the limits of a cgroup', () => {
    test('reads the limits of a cgroup from its files', async () => {
      put('memory.max', '268435456\n');
      put('memory.swap.max', 'max\n');
      put('cpu.max', '50000 100000\n');
      put('cpu.weight', '39\n');
      await expect(tree.readLimits('/kubepods/pod1')).resolves.toEqual({
        memoryMax: 268435456,
        cpuMax: { quota: 50000, period: 100000 },
        cpuWeight: 39,
      });
      expect(tree.readSwapMax('/kubepods/pod1')).toBe('max');
    });

    test('limits of a cgroup are undefined without their files', async () => {
      put('memory.max', 'max\n');
      await expect(tree.readLimits('/kubepods/pod1')).resolves.toEqual({
        memoryMax: 'max',
        cpuMax: undefined,
        cpuWeight: undefined,
      });
      expect(tree.readSwapMax('/kubepods/pod1')).toBeUndefined();
    });

    test('reading limits fails without memory.max, for a removed cgroup, or with invalid content', async () => {
      await expect(tree.readLimits('/kubepods/pod1')).rejects.toMatchObject({ reason: 'CGROUP_UNAVAILABLE' });
      await expect(tree.readLimits('/kubepods/pod2')).rejects.toSatisfy(isCgroupVanished);
      put('memory.max', 'plenty\n');
      await expect(tree.readLimits('/kubepods/pod1')).rejects.toMatchObject({ context: { found: 'plenty' } });
    });
  });

  describe('the memory usage of a cgroup', () => {
    test('reads the memory usage of a cgroup from its files', async () => {
      put('memory.current', '4096000\n');
      put('memory.stat', 'anon 1000\nfile 5000\nshmem 2000\nunevictable 2000\nactive_anon 0\ninactive_anon 1000\n');
      put('memory.events', 'oom 1\noom_kill 1\n');
      await expect(tree.readMemoryUse('/kubepods/pod1')).resolves.toEqual({
        current: 4096000,
        unreclaimable: 3000,
        swappable: 0,
        swapExcess: 0,
        anon: 1000,
        shmem: 2000,
        unevictable: 2000,
        file: 5000,
        kernelUnreclaimable: 0,
        oomKills: 1,
      });
      await expect(tree.readMemoryUse('/kubepods/pod2')).rejects.toSatisfy(isCgroupVanished);
    });
  });

  describe('a write of a limit', () => {
    test('a write of a limit sets the content of the file', async () => {
      put('memory.max', 'max');
      const step = { file: 'memory.max', value: bytes(134217728) } as const;
      await expect(tree.write('/kubepods/pod1', step)).resolves.toEqual({ outcome: 'written', found: '134217728' });
      expect(content('memory.max')).toBe('134217728');
    });

    test('a write of an unchanged limit is skipped', async () => {
      put('memory.max', '99999744\n');
      put('cpu.max', 'max 100000\n');
      put('cpu.weight', '100\n');
      put('memory.oom.group', '1\n');
      for (const [file, step] of [
        ['memory.max', { file: 'memory.max', value: bytes(100_000_000) }],
        ['cpu.max', { file: 'cpu.max', value: { quota: 'max', period: microseconds(100_000) } }],
        ['cpu.weight', { file: 'cpu.weight', value: cpuWeight(100) }],
        ['memory.oom.group', { file: 'unified', key: 'memory.oom.group', value: '1' }],
      ] as const) {
        utimesSync(join(pod, file), 1, 1);
        await expect(tree.write('/kubepods/pod1', step)).resolves.toMatchObject({ outcome: 'unchanged' });
        expect(statSync(join(pod, file)).mtimeMs).toBe(1000);
      }
    });

    test('a write of cpu.max with a changed period is not skipped', async () => {
      put('cpu.max', 'max 100000');
      const step = { file: 'cpu.max', value: { quota: 'max', period: microseconds(50_000) } } as const;
      await expect(tree.write('/kubepods/pod1', step)).resolves.toMatchObject({ outcome: 'written' });
      expect(content('cpu.max')).toBe('max 50000');
    });

    test('a write of a limit fails with both values when the file has another value afterwards', async () => {
      put('memory.max', 'max\n');
      put('cpu.max', 'max 100000');
      // Another process writes after the shim, and before the shim reads the value back.
      const write = vi.spyOn(CgroupFiles.prototype, 'write').mockImplementation(function (this: CgroupFiles, ...asked) {
        write.mockRestore();
        return this.write(...asked).then(() => put('cpu.max', 'max 60000\n'));
      });
      const step = { file: 'cpu.max', value: { quota: 'max', period: microseconds(50_000) } } as const;
      await expect(tree.write('/kubepods/pod1', step)).rejects.toMatchObject({
        reason: 'CGROUP_WRITE_FAILED',
        context: { file: join(pod, 'cpu.max'), asked: 'max 50000', found: 'max 60000' },
      });
    });

    test('a write of an invalid limit does not change the file', async () => {
      put('cpu.max', 'max 100000');
      put('cpu.weight', '100');
      for (const step of [
        { file: 'cpu.max', value: { quota: microseconds(10), period: microseconds(100_000) } },
        { file: 'cpu.weight', value: cpuWeight(0) },
        { file: 'unified', key: 'cgroup.procs', value: '1' },
        { file: 'unified', key: '../memory.max', value: '1' },
      ] as const) {
        await expect(tree.write('/kubepods/pod1', step)).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
      }
      expect([content('cpu.max'), content('cpu.weight')]).toEqual(['max 100000', '100']);
    });

    test('a write of a limit to a removed cgroup reports a removed cgroup', async () => {
      await expect(tree.write('/kubepods/pod2', { file: 'memory.max', value: 'max' })).rejects.toSatisfy(
        isCgroupVanished,
      );
    });
  });
});

describe('load of a cgroup', () => {
  const put = (file: string, content: string): void => writeFileSync(join(root, 'pod1', file), content);

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'cgroup-load-'));
    mkdirSync(join(root, 'pod1'));
    tree = new CgroupTree(root);
  });

  test('the load of a cgroup is read from its files', async () => {
    put('memory.current', '4096000\n');
    put('memory.stat', 'anon 1000\nfile 5000\nshmem 2000\n');
    put('memory.events', 'oom_kill 0\n');
    put('cpu.stat', 'usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n');
    put('memory.pressure', 'some avg10=1.50 avg60=0.70 avg300=0.10 total=12\nfull avg10=1.00 avg60=0.00 total=3\n');
    put('cpu.pressure', 'some avg10=100.00 avg60=9.00 avg300=2.00 total=9\n');
    await expect(readLoad(tree, '/pod1')).resolves.toEqual({
      unreclaimable: 3000,
      cpuTime: 1_234_567,
      memoryStalled: 1.5,
      cpuStalled: 100,
    });
  });

  test('a figure that the kernel does not have, or has in another form, is unknown', async () => {
    put('memory.current', '4096000\n');
    put('memory.stat', 'anon many\n');
    put('cpu.stat', 'nr_periods 0\n');
    put('memory.pressure', '\n');
    await expect(readLoad(tree, '/pod1')).resolves.toEqual({
      unreclaimable: undefined,
      cpuTime: undefined,
      memoryStalled: undefined,
      cpuStalled: undefined,
    });
  });

  test('the load of a removed cgroup is an error', async () => {
    await expect(readLoad(tree, '/pod2')).rejects.toSatisfy(isCgroupVanished);
  });
});
