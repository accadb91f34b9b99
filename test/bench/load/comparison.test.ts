import { expect, test } from 'vitest';
import { compare, cpuShare } from '../../../bench/load/comparison.ts';

test('compares each call with its direct counterpart by the median of the replays', () => {
  // The second call is slow on both sides, and the third only through the shim.
  const direct = [
    [100, 5000, 100],
    [110, 5100, 100],
    [90, 4900, 9000],
  ];
  const shim = [
    [150, 5200, 2100],
    [9000, 5250, 2100],
    [160, 5300, 2000],
  ];
  const found = compare(direct, shim);
  expect(found).toMatchObject({ addedP50: 250, addedP99: 2000, addedMost: 2000, slowest: 2 });
  expect(found.direct).toEqual({ p50: 110, p99: 9000, most: 9000 });
  expect(found.shim).toEqual({ p50: 2100, p99: 9000, most: 9000 });
});

test('one slow call of many raises the maximum of the added times, and not their 99th percentile', () => {
  const direct = [new Float64Array(200).fill(100)];
  const shim = [new Float64Array(200).fill(150)];
  shim[0]![77] = 6100;
  expect(compare(direct, shim)).toMatchObject({ addedP50: 50, addedP99: 50, addedMost: 6000, slowest: 77 });
});

test('a call that the shim makes faster has a negative added time', () => {
  expect(compare([[100]], [[60]])).toMatchObject({ addedP50: -40, addedMost: -40 });
});

test('rejects sides with a different number of calls, or without replays', () => {
  expect(() => compare([[1, 2]], [[1]])).toThrow('no call 1');
  expect(() => compare([], [])).toThrow(RangeError);
});

test('compares CPU times relative to the yardstick of each machine', () => {
  const containerd = { cpuMs: 1000, yardstickMs: 10 };
  expect(cpuShare({ cpuMs: 250, yardstickMs: 10 }, containerd)).toBeCloseTo(0.25);
  // A machine that is twice as slow.
  expect(cpuShare({ cpuMs: 500, yardstickMs: 20 }, containerd)).toBeCloseTo(0.25);
  expect(() => cpuShare(containerd, { cpuMs: 0, yardstickMs: 10 })).toThrow('no CPU time of containerd');
});
