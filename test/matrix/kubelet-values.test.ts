import { describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { equal } from './amounts.ts';
import type { MatrixContainer } from './cases.ts';
import { podValues, podWeight, qosClass, quotaOf, sharesOf, sharesOfPodWeight } from './kubelet-values.ts';

const app = (name: string): MatrixContainer => ({ name, role: 'app' });

test.each([
  [0, 2, 0],
  [1, 2, 1000],
  [100, 102, 10_000],
  [2500, 2560, 250_000],
  [1_000_000, 262_144, 100_000_000],
])('%d milliCPU are %d shares and a quota of %d', (milliCpu, shares, quota) => {
  expect(sharesOf(milliCpu)).toBe(shares);
  expect(quotaOf(milliCpu)).toBe(quota);
});

// The cases of kubelet's own test, TestCpuWeightToCPUShares.
test.each([
  [1, 2],
  [2, 28],
  [3, 54],
  [4, 80],
  [245, 6398],
  [10_000, 262_144],
])('kubelet reads weight %d as %d shares', (weight, shares) => {
  expect(sharesOfPodWeight(weight)).toBe(shares);
});

test('a weight may change when kubelet reads it as shares and writes it again', () => {
  expect(podWeight(102)).toBe(4);
  expect(podWeight(sharesOfPodWeight(4))).toBe(3);
});

describe('the values of a pod', () => {
  const both = [app('a'), app('b')];
  const full = { cpu: equal(100), memory: equal(64) };

  test('a pod of class Guaranteed has all limits', () => {
    const amounts = { a: full, b: full };
    expect(qosClass(both, amounts)).toBe('guaranteed');
    expect(podValues(both, amounts, 'guaranteed')).toEqual({ memory: 128 * MiB, quota: 20_000, shares: 204 });
  });

  test('a pod of class Burstable has only the limits that every container has', () => {
    const amounts = { a: full, b: { memory: equal(32) } };
    expect(qosClass(both, amounts)).toBe('burstable');
    expect(podValues(both, amounts, 'burstable')).toEqual({ memory: 96 * MiB, quota: undefined, shares: 102 });
  });

  test('a pod of class BestEffort has the minimum shares, for any resources of its containers', () => {
    expect(qosClass(both, { a: {}, b: {} })).toBe('besteffort');
    expect(podValues(both, { a: full, b: full }, 'besteffort')).toEqual({
      memory: undefined,
      quota: undefined,
      shares: 2,
    });
  });

  test('the values of a pod include an init container with its earlier sidecars, if they exceed the running containers', () => {
    const containers: MatrixContainer[] = [
      { name: 'sidecar', role: 'sidecar' },
      { name: 'init', role: 'init' },
      app('a'),
    ];
    const amounts = { sidecar: full, init: { cpu: equal(300), memory: equal(32) }, a: full };
    expect(podValues(containers, amounts, 'guaranteed')).toEqual({ memory: 128 * MiB, quota: 40_000, shares: 409 });
  });
});
