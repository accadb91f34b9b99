import { describe, expect, it } from 'vitest';
import { assertUnified, isSameUnified } from '../../src/cgroups/index.ts';

describe('a unified key', () => {
  it.each([
    ['memory.oom.group', '1'],
    ['memory.high', 'max'],
    ['cpu.weight.nice', '-5'],
    ['io.max', '8:16 rbps=2097152 wiops=120'],
    ['hugetlb.2MB.max', '0'],
    ['misc.max', 'sev 1'],
  ])('may be %s', (key, value) => {
    expect(() => assertUnified(key, value)).not.toThrow();
  });

  it.each([
    ['cgroup.procs', '1'],
    ['cgroup.kill', '1'],
    ['cgroup.subtree_control', '-memory'],
    ['memory.reclaim', '1G'],
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
  ])('is refused: %j=%j', (key, value) => {
    expect(() => assertUnified(key, value)).toThrow(expect.objectContaining({ code: 3, reason: 'INVALID_VALUE' }));
  });
});

describe('a unified value that was written', () => {
  it.each([
    ['33554432', '33554432'],
    ['32M', '33554432'],
    ['32m', '33554432'],
    ['2g', '2147483648'],
    [' max ', 'max'],
    ['8:16 rbps=1', '8:16 rbps=1'],
  ])('%j is found as %j', (asked, found) => {
    expect(isSameUnified(asked, found)).toBe(true);
  });

  it.each([
    ['32M', '33554433'],
    ['32', '33554432'],
    ['max', '0'],
    ['8:16 rbps=1', '8:16 rbps=2'],
  ])('%j is not %j', (asked, found) => {
    expect(isSameUnified(asked, found)).toBe(false);
  });
});
