import { expect, test } from 'vitest';
import { type CgroupWrite, isQuickWrite } from '../../../src/cgroups/values/write.ts';
import { bytes, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';

const quota = { quota: microseconds(1000), period: microseconds(100_000) };

test.each<[CgroupWrite, string, boolean, boolean]>([
  [{ file: 'memory.max', value: bytes(8192) }, '4096', true, true],
  [{ file: 'memory.high', value: 'max' }, '4096', true, true],
  [{ file: 'memory.max', value: bytes(4096) }, '8192', false, true],
  [{ file: 'memory.high', value: bytes(4096) }, 'max', false, true],
  [{ file: 'cpu.weight', value: cpuWeight(5) }, '100', true, true],
  // These writes wait for kernel locks, or their duration is unknown.
  [{ file: 'cpu.max', value: quota }, 'max 100000', false, false],
  [{ file: 'unified', key: 'memory.max', value: '8192' }, '4096', false, false],
])('a write without reclaim does not need the thread pool: %j over %s', (step, before, ifReclaims, otherwise) => {
  expect([isQuickWrite(step, before, true), isQuickWrite(step, before, false)]).toEqual([ifReclaims, otherwise]);
});
