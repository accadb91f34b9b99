import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  cpuMaxOfCri,
  cpuSharesOfCri,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
  formulasOf,
  memoryMaxOfCri,
  sharesOfWeight,
  sharesToReport,
  swapMaxOfCri,
  type WeightFormula,
  weightMatchesShares,
  weightOfShares,
} from '../../../src/cgroups/values/conversions.ts';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';

const invalid = expect.objectContaining({ code: 3, reason: 'INVALID_VALUE' }) as Error;
const anyShares = fc.integer({ min: 2, max: 262_144 }).map(cpuShares);
const anyWeight = fc.integer({ min: 1, max: 10_000 }).map(cpuWeight);
const anyFormula = fc.constantFrom<WeightFormula>('old', 'new');

describe('weightOfShares', () => {
  test.each([
    [2, 1, 1],
    [10, 1, 4],
    [102, 4, 17],
    [512, 20, 59],
    [1024, 39, 100],
    [2048, 79, 174],
    [10240, 391, 639],
    [262144, 10000, 10000],
  ])('the weight of %i shares is %i by the old formula and %i by the new one', (shares, old, recent) => {
    expect(weightOfShares(cpuShares(shares), 'old')).toBe(old);
    expect(weightOfShares(cpuShares(shares), 'new')).toBe(recent);
  });

  test('weightOfShares clamps shares as cgroup v1 does', () => {
    for (const formula of ['old', 'new'] as const) {
      expect(weightOfShares(cpuShares(1), formula)).toBe(1);
      expect(weightOfShares(cpuShares(1_000_000), formula)).toBe(10_000);
    }
  });

  test('weightOfShares is in the range of the kernel and does not decrease with the shares, by both formulas', () => {
    fc.assert(
      fc.property(anyShares, anyShares, anyFormula, (a, b, formula) => {
        const [less, more] = a <= b ? [a, b] : [b, a];
        expect(weightOfShares(less, formula)).toBeGreaterThanOrEqual(1);
        expect(weightOfShares(less, formula)).toBeLessThanOrEqual(weightOfShares(more, formula));
        expect(weightOfShares(more, formula)).toBeLessThanOrEqual(10_000);
      }),
    );
  });
});

describe('the shares to report for a weight of the kernel', () => {
  test('KEP-1287: the stored CPU shares are reported when they map to the current cpu.weight by either formula', () => {
    fc.assert(
      fc.property(anyShares, anyFormula, anyFormula, (stored, writer, named) => {
        expect(sharesToReport(weightOfShares(stored, writer), stored, named)).toBe(stored);
      }),
    );
  });

  test('shares are computed from the weight when the stored shares map to another weight, or no shares are stored', () => {
    expect(weightMatchesShares(cpuWeight(500), cpuShares(1024))).toBe(false);
    const shares = sharesToReport(cpuWeight(500), cpuShares(1024), 'new');
    expect(weightOfShares(shares, 'new')).toBe(500);
    expect(sharesToReport(cpuWeight(100), undefined, 'new')).toBe(1024);
  });

  test('shares that are computed from a weight map to that weight again', () => {
    fc.assert(
      fc.property(anyShares, anyFormula, (shares, formula) => {
        const weight = weightOfShares(shares, formula);
        expect(weightOfShares(sharesOfWeight(weight, formula), formula)).toBe(weight);
      }),
    );
  });

  test('shares that are computed from any weight are in the valid range, also for an idle cgroup', () => {
    fc.assert(
      fc.property(anyWeight, anyFormula, (weight, formula) => {
        const shares = sharesOfWeight(weight, formula);
        expect(shares).toBeGreaterThanOrEqual(2);
        expect(shares).toBeLessThanOrEqual(262_144);
      }),
    );
    // Several shares result in the same weight: the old formula returns the smallest of them, the new one the largest.
    expect(sharesOfWeight(cpuWeight(2), 'old')).toBe(29);
    expect(sharesOfWeight(cpuWeight(2), 'new')).toBe(5);
    expect(sharesOfWeight(cpuWeight(0), 'old')).toBe(2);
    expect(sharesOfWeight(cpuWeight(0), 'new')).toBe(2);
    expect(sharesOfWeight(cpuWeight(10_000), 'old')).toBe(262_144);
    expect(sharesOfWeight(cpuWeight(10_000), 'new')).toBe(262_144);
  });

  test('formulasOf returns the formulas that map shares to a weight', () => {
    expect(formulasOf(cpuWeight(39), cpuShares(1024))).toEqual(['old']);
    expect(formulasOf(cpuWeight(100), cpuShares(1024))).toEqual(['new']);
    expect(formulasOf(cpuWeight(1), cpuShares(2))).toEqual(['old', 'new']);
    expect(formulasOf(cpuWeight(7), cpuShares(1024))).toEqual([]);
  });
});

describe('a memory limit of CRI', () => {
  test('KEP-1287: a memory limit of 0 in a CRI update keeps the value, -1 removes the limit, and other numbers set it', () => {
    expect(memoryMaxOfCri(0)).toBeUndefined();
    expect(memoryMaxOfCri(0n)).toBeUndefined();
    expect(memoryMaxOfCri(-1n)).toBe('max');
    expect(memoryMaxOfCri(67108864n)).toBe(67108864);
    expect(memoryMaxOfCri(2n ** 53n - 1n)).toBe(Number.MAX_SAFE_INTEGER);
  });

  test('an invalid CRI limit is rejected with field, value and reason', () => {
    const rejection = (field: string, asked: string, why: string): unknown =>
      expect.objectContaining({ message: `${field}: ${asked}: ${why}`, context: { asked } });
    const negative = 'the only allowed negative number is -1';
    const never = 'must not be negative';
    const inexact = 'must be a whole number below 2^53';
    const [limit, swap] = ['memory_limit_in_bytes', 'memory_swap_limit_in_bytes'];
    expect(() => memoryMaxOfCri(-2)).toThrow(rejection(limit, '-2', negative));
    expect(() => memoryMaxOfCri(1.5)).toThrow(rejection(limit, '1.5', inexact));
    expect(() => memoryMaxOfCri(2n ** 53n)).toThrow(rejection(limit, '9007199254740992', 'must be below 2^53'));
    expect(() => swapMaxOfCri(1.5, 'max')).toThrow(rejection(swap, '1.5', inexact));
    expect(() => swapMaxOfCri(-2, 'max')).toThrow(rejection(swap, '-2', negative));
    expect(() => swapMaxOfCri(99, 'max')).toThrow(rejection(swap, '99', 'requires a memory limit'));
    expect(() => swapMaxOfCri(99, bytes(100))).toThrow(rejection(swap, '99', 'below the memory limit 100'));
    expect(() => cpuMaxOfCri(1.5, 0, undefined)).toThrow(rejection('cpu_quota', '1.5', inexact));
    expect(() => cpuMaxOfCri(-2, 0, undefined)).toThrow(rejection('cpu_quota', '-2', negative));
    expect(() => cpuMaxOfCri(0, 1.5, undefined)).toThrow(rejection('cpu_period', '1.5', inexact));
    for (const value of [-1, -2])
      expect(() => cpuMaxOfCri(0, value, undefined)).toThrow(rejection('cpu_period', String(value), never));
    expect(() => cpuSharesOfCri(1.5)).toThrow(rejection('cpu_shares', '1.5', inexact));
    for (const value of [-1, -2])
      expect(() => cpuSharesOfCri(value)).toThrow(rejection('cpu_shares', String(value), never));
  });

  test('a CRI memory limit is no limit when the kernel reads it as none', () => {
    expect(swapMaxOfCri(9223372036854771712n, bytes(100))).toBe('max');
    expect(memoryMaxOfCri(9223372036854771712n)).toBe('max');
    expect(memoryMaxOfCri(9223372036854775807n)).toBe('max');
  });

  test.each([-2, -2n, 2n ** 60n, 1.5, Number.NaN, 2 ** 53])('a CRI memory limit of %s is rejected', (value) => {
    expect(() => memoryMaxOfCri(value)).toThrow(invalid);
  });

  test('a CRI memory limit is unchanged after conversion to memory.max and back', () => {
    fc.assert(
      fc.property(fc.oneof(fc.constant(-1), fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })), (limit) => {
        expect(criOfMemoryMax(memoryMaxOfCri(limit) ?? bytes(0))).toBe(limit);
      }),
    );
  });

  test('a CRI swap limit includes memory, unlike memory.swap.max', () => {
    expect(swapMaxOfCri(300, bytes(100))).toBe(200);
    expect(swapMaxOfCri(100, bytes(100))).toBe(0);
    expect(swapMaxOfCri(0, bytes(100))).toBeUndefined();
    expect(swapMaxOfCri(-1, bytes(100))).toBe('max');
    expect(swapMaxOfCri(-1, 'max')).toBe('max');
    expect(() => swapMaxOfCri(99, bytes(100))).toThrow(invalid);
    expect(() => swapMaxOfCri(99, 'max')).toThrow(invalid);
    expect(criOfSwapMax(bytes(200), bytes(100))).toBe(300);
    expect(criOfSwapMax('max', bytes(100))).toBe(-1);
    expect(criOfSwapMax(bytes(0), 'max')).toBe(-1);
  });
});

describe('a CPU limit of CRI', () => {
  const current = { quota: microseconds(20_000), period: microseconds(50_000) };

  test('a CRI quota or period of 0 keeps the current value', () => {
    expect(cpuMaxOfCri(0, 0, current)).toBeUndefined();
    expect(cpuMaxOfCri(30_000n, 0n, current)).toEqual({ quota: 30_000, period: 50_000 });
    expect(cpuMaxOfCri(0, 100_000, current)).toEqual({ quota: 20_000, period: 100_000 });
    expect(cpuMaxOfCri(-1, 0, current)).toEqual({ quota: 'max', period: 50_000 });
  });

  test('a CRI quota or period of 0 has the kernel default when the current value is unknown', () => {
    expect(cpuMaxOfCri(30_000, 0, undefined)).toEqual({ quota: 30_000, period: 100_000 });
    expect(cpuMaxOfCri(0, 50_000, undefined)).toEqual({ quota: 'max', period: 50_000 });
  });

  test.each([
    [999, 0],
    [-2, 0],
    [0, 999],
    [0, 1_000_001],
    [0, -1],
  ])('a CRI CPU limit is rejected outside the range of the kernel: quota %i, period %i', (quota, period) => {
    expect(() => cpuMaxOfCri(quota, period, current)).toThrow(invalid);
  });

  test('cpu.max without a limit is converted to a CRI quota of -1', () => {
    expect(criOfCpuMax({ quota: 'max', period: microseconds(100_000) })).toEqual({ quota: -1, period: 100_000 });
    expect(criOfCpuMax(current)).toEqual({ quota: 20_000, period: 50_000 });
  });

  test('CRI shares of 0 mean no change, and other shares are clamped', () => {
    expect(cpuSharesOfCri(0)).toBeUndefined();
    expect(cpuSharesOfCri(1n)).toBe(2);
    expect(cpuSharesOfCri(1024n)).toBe(1024);
    expect(cpuSharesOfCri(2n ** 62n)).toBe(262_144);
    expect(() => cpuSharesOfCri(-1)).toThrow(invalid);
  });
});
