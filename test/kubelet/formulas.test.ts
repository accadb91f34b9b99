import { describe, expect, test } from 'vitest';
import { cpuShares, cpuWeight, microseconds } from '../../src/core/quantities/numbers.ts';
import {
  cpuWeightToShares,
  exactMilliCpu,
  exactQuota,
  milliCpuToQuota,
  milliCpuToShares,
  overheadQuota,
  quotaToMilliCpu,
  sharesToMilliCpu,
} from '../../src/kubelet/formulas.ts';

const period = microseconds(100_000);

describe('milliCPU and quotas', () => {
  test('a quota has at least the minimum of the kernel, and is rounded down', () => {
    expect([0, 1, 10, 11, 125, 1500].map((milli) => milliCpuToQuota(milli, period))).toEqual([
      1000, 1000, 1000, 1100, 12_500, 150_000,
    ]);
    expect(milliCpuToQuota(333, microseconds(50_005))).toBe(16_651);
  });

  test('the milliCPU of a quota are rounded down as in kubelet, or are exact', () => {
    expect([12_500, 12_599, 150_000].map((quota) => quotaToMilliCpu(microseconds(quota), period))).toEqual([
      125, 125, 1500,
    ]);
    expect(exactMilliCpu(12_550, 100_000)).toBe(125.5);
    expect(exactQuota(125.5, 100_000)).toBe(12_550);
  });

  test('the quota of an overhead is converted to another period and rounded up', () => {
    expect(overheadQuota({ quota: microseconds(25_000), period }, period)).toBe(25_000);
    expect(overheadQuota({ quota: microseconds(25_001), period }, microseconds(50_000))).toBe(12_501);
  });
});

describe('milliCPU and shares', () => {
  test('shares are rounded down, and stay within the bounds of cgroup v1', () => {
    expect([0, 1, 2, 100, 1000, 256_000, 300_000].map(milliCpuToShares)).toEqual([
      2, 2, 2, 102, 1024, 262_144, 262_144,
    ]);
  });

  test('milliCPU of shares are rounded up', () => {
    expect([2, 102, 1024].map((shares) => sharesToMilliCpu(cpuShares(shares)))).toEqual([2, 100, 1000]);
  });

  test('shares of a weight are rounded down', () => {
    expect([1, 2, 39, 100, 10_000].map((weight) => cpuWeightToShares(cpuWeight(weight)))).toEqual([
      2, 28, 998, 2597, 262_144,
    ]);
  });
});
