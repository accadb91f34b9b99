import { describe, expect, test } from 'vitest';
import { assertUnified, isSameUnified } from '../../../src/cgroups/values/unified.ts';

describe('assertUnified', () => {
  test.each([
    ['memory.oom.group', '1'],
    ['memory.high', 'max'],
    ['cpu.weight.nice', '-5'],
    ['io.max', '8:16 rbps=2097152 wiops=120'],
    ['hugetlb.2MB.max', '0'],
    ['misc.max', 'sev 1'],
    ['cpuset.cpus', '0-1'],
    ['pids.max', '100'],
    ['rdma.max', 'mlx4_0 hca_handle=2'],
    ['memory.high', '9'.repeat(1024)],
    ['cpuset.cpus.partition', 'member'],
    ['memory.swap.max', '0'],
    ['dmem.max', 'drm/0000:03:00.0/vram0 1073741824'],
  ])('accepts the setting %s', (key, value) => {
    expect(() => assertUnified(key, value)).not.toThrow();
  });

  test.each([
    ['cgroup.procs', '1'],
    ['cgroup.kill', '1'],
    ['cgroup.subtree_control', '-memory'],
    ['memory.reclaim', '1G'],
    ['memory.pressure', 'some 150000 1000000'],
    ['memory.current', '1'],
    ['memory.stat', '1'],
    ['memory.numa_stat', '1'],
    ['memory.events', '1'],
    ['memory.swap.peak', '1'],
    ['misc.capacity', '1'],
    ['cpu.stat.local', '1'],
    ['cpuset.cpus.effective', '0'],
    ['hugetlb.2MB.rsvd.current', '0'],
    ['__proto__', '1'],
    ['constructor', '1'],
    ['../memory.max', '1'],
    ['memory.max/../cgroup.procs', '1'],
    ['memory', '1'],
    ['memory.', '1'],
    ['.max', '1'],
    ['memory.max\n', '1'],
    ['Memory.max', '1'],
    ['', '1'],
    ['memory.high', ''],
    ['memory.high', '1\n2'],
    ['memory.high', '1\0'],
    ['memory.high', '9'.repeat(1025)],
  ])('rejects the setting %j=%j', (key, value) => {
    expect(() => assertUnified(key, value)).toThrow(expect.objectContaining({ code: 3, reason: 'INVALID_VALUE' }));
  });

  test('rejects a key of a million characters, and repeats only its beginning', () => {
    expect(() => assertUnified(`memory.${'x'.repeat(1_000_000)}/`, '1')).toThrow(
      expect.objectContaining({ context: { file: `memory.${'x'.repeat(73)}`, asked: '1' } }),
    );
  });

  test('rejects a setting with its key, its value and a reason, and truncates a long value', () => {
    expect(() => assertUnified('cgroup.procs', '1')).toThrow(
      expect.objectContaining({
        message: 'unified "cgroup.procs"="1": not a setting of a cgroup controller',
        context: { file: 'cgroup.procs', asked: '1' },
      }),
    );
    expect(() => assertUnified('io.max', `${'x'.repeat(80)}\n`)).toThrow(
      expect.objectContaining({
        message: `unified "io.max"="${'x'.repeat(80)}": the value must be one line of 1 to 1024 characters`,
        context: { file: 'io.max', asked: 'x'.repeat(80) },
      }),
    );
  });
});

describe('isSameUnified', () => {
  test.each([
    ['33554432', '33554432'],
    ['32M', '33554432'],
    ['32m', '33554432'],
    ['2g', '2147483648'],
    [' max ', 'max'],
    ['8:16 rbps=1', '8:16 rbps=1'],
    [' 32M\n', '33554432\n'],
    ['max', 'max\n'],
    ['1k', '1024'],
    ['2E', '2305843009213693952'],
  ])('is true for %j and %j', (asked, found) => {
    expect(isSameUnified(asked, found)).toBe(true);
  });

  test.each([
    ['32M', '33554433'],
    ['32', '33554432'],
    ['max', '0'],
    ['8:16 rbps=1', '8:16 rbps=2'],
    ['x32M', '33554432'],
    ['32MB', '33554432'],
    ['032 M', '33554432'],
    ['lots', 'undefined'],
    // The kernel reads a leading 0 as octal.
    ['0032', '32'],
    ['0', '00'],
  ])('is false for %j and %j', (asked, found) => {
    expect(isSameUnified(asked, found)).toBe(false);
  });
});
