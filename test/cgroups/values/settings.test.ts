import { describe, expect, test } from 'vitest';
import { holdsSetting, type Machine, restoringSetting } from '../../../src/cgroups/values/settings.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';

/** A machine with up to four CPUs, and one memory node. */
const machine: Machine = { pageSize: bytes(4096), lastPossible: (kind) => (kind === 'cpu' ? 3 : 0) };
const holds = (key: string, asked: string, found: string) => holdsSetting(key, asked, found, machine);

describe('comparison of a file with a setting', () => {
  test.each([
    ['memory.high', '1M', '1048576', true],
    ['memory.high', '1000000', '999424', true],
    ['memory.high', '1000000', '1000000', true],
    ['memory.high', '1000000', '995328', false],
    ['memory.low', '0', '4096', false],
    ['memory.high', 'max', 'max', true],
    ['memory.high', '9223372036854771712', 'max', true],
    ['memory.high', 'max', '4096', false],
    ['memory.swap.max', '0', '0', true],
    ['memory.min', 'strange', '0', undefined],
    ['hugetlb.2MB.max', '4194304', '4194304', true],
    ['hugetlb.2MB.max', '5000000', '4194304', true],
    ['hugetlb.2MB.max', '1', '0', true],
    ['hugetlb.1GB.max', '2147483648', '1073741824', false],
    ['hugetlb.2MB.max', '18446744073709551615', 'max', true],
    ['memory.oom.group', '1', '1\n', true],
    ['memory.oom.group', '1', '0', false],
    ['pids.max', '100', 'max', false],
    ['cpuset.cpus', '0,1,2,5', '0-2,5', true],
    ['cpuset.cpus', '2,0-1', '0-2', true],
    ['cpuset.cpus', '0-1', '0-2', false],
    ['cpuset.cpus', '0-99999', '0', undefined],
    ['cpuset.cpus', '', '0-3', undefined],
    ['cpuset.cpus', 'all', '0-3', true],
    ['cpuset.cpus', 'ALL', '0-3', true],
    ['cpuset.cpus', 'all', '0-1', false],
    // A kernel that is built for 64 CPUs.
    ['cpuset.cpus', 'all', '0-63', true],
    ['cpuset.cpus', 'all', '0-62', false],
    ['cpuset.cpus', 'all:1/2', '0,2', true],
    ['cpuset.cpus', 'N', '3', true],
    ['cpuset.cpus', 'N', '2', false],
    ['cpuset.cpus', '1-N', '1-3', true],
    ['cpuset.cpus', '0,2-N', '0,2-3', true],
    ['cpuset.cpus', 'N-N', '3', true],
    ['cpuset.cpus', '5-N', '5-7', true],
    ['cpuset.cpus', '5-N', '5-6', false],
    ['cpuset.cpus', '0-10:2/4', '0-1,4-5,8-9', true],
    ['cpuset.cpus', '0-10:2/4', '0-1,4-5', false],
    ['cpuset.cpus', '0-3:1/2 8', '0,2,8', true],
    ['cpuset.cpus', '0-3:4/4', '0-3', true],
    ['cpuset.cpus', '1-3:2/3', '1-2', true],
    // The kernel rejects these.
    ['cpuset.cpus', '0-3:1/0', '0-3', undefined],
    ['cpuset.cpus', '0-3:3/2', '0-3', undefined],
    ['cpuset.cpus', '3:1/2', '3', undefined],
    ['cpuset.cpus', '3-1', '1-3', undefined],
    ['cpuset.cpus', 'n', '3', undefined],
    ['cpuset.cpus', '0-1', 'unknown', undefined],
    ['cpuset.mems', 'all', '0', true],
    ['cpuset.mems', 'all', '0-1023', true],
    ['cpuset.mems', 'N', '1', true],
    ['cpuset.mems', 'all', '1', false],
    ['cpu.max', '20000', '20000 50000', true],
    ['cpu.max', 'max 100000', 'max 50000', true],
    ['cpu.max', '20000 100000', '20000 50000', false],
    ['io.max', '8:16 rbps=2097152', '8:0 rbps=1 wbps=max\n8:16 rbps=2097152 wbps=max riops=max wiops=max', true],
    ['io.max', '8:16 rbps=2097152', '8:16 rbps=max wbps=5 riops=max wiops=max', false],
    ['io.max', '8:16 rbps=2097152', '', false],
    ['io.max', '8:16 rbps=max', '', true],
    ['io.weight', '200', 'default 200', true],
    ['io.weight', 'default 200', 'default 100\n8:16 200', false],
    ['io.weight', '8:16 default', 'default 100', true],
    ['io.latency', '8:16 target=1000', '8:16 target=1000', true],
    ['rdma.max', 'mlx4_0 hca_handle=2', 'mlx4_0 hca_handle=2 hca_object=max', true],
    ['cpu.weight.nice', '5', '4', undefined],
  ])('the setting %s=%j is compared with %j in the file: %s', (key, asked, found, expected) => {
    expect(holds(key, asked, found)).toBe(expected);
  });
});

// settings.speed.test.ts measures the duration of this comparison.
test.each(['0-8191,', '0-8191:1/2,'])('compares the longest accepted list, of %s', (part) => {
  // The last CPU may be any of fourteen numbers.
  const asked = `${part.repeat(Math.floor(4095 / part.length))}N`;
  const small: Machine = { ...machine, lastPossible: () => 1 };
  expect(holdsSetting('cpuset.cpus', asked, '0-3', small)).toBe(false);
});

test('a list up to the last CPU is not compared if the last CPU is unknown', () => {
  const unknown: Machine = { ...machine, lastPossible: () => undefined };
  expect(holdsSetting('cpuset.cpus', 'all', '0-3', unknown)).toBeUndefined();
  expect(holdsSetting('cpuset.cpus', '0-3:1/2', '0,2', unknown)).toBe(true);
});

describe('the value that restores a file', () => {
  test.each([
    ['memory.high', '1M', 'max\n', 'max'],
    ['cpuset.cpus', '0-1', '0-3', '0-3'],
    ['io.max', '8:16 rbps=1', '8:0 rbps=5', '8:16 rbps=max wbps=max riops=max wiops=max'],
    ['io.max', '8:16 rbps=1', '8:0 rbps=5\n8:16 rbps=7 wbps=max', '8:16 rbps=7 wbps=max'],
    ['io.weight', '200', 'default 100\n8:16 300', 'default 100'],
    ['io.weight', '8:16 200', 'default 100', '8:16 default'],
    ['io.latency', '8:16 target=1000', '', '8:16 target=0'],
    ['misc.max', 'res_a 3', 'res_a 5\nres_b 7', 'res_a 5'],
    ['dmem.low', 'drm/card0 1', '', 'drm/card0 0'],
  ])('%s: a write of %j over %j is rolled back by %j', (key, asked, before, restoring) => {
    expect(restoringSetting(key, asked, before)).toBe(restoring);
    // The comparison is true again once the previous value is restored.
    expect(holds(key, restoring, before)).toBe(true);
  });
});
