import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { WeightFormula } from '../../src/cgroups/index.ts';
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
  weightMatchesShares,
  weightOfShares,
} from '../../src/cgroups/index.ts';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../src/core/quantities/index.ts';

const invalid = expect.objectContaining({ code: 3, reason: 'INVALID_VALUE' }) as Error;
const anyShares = fc.integer({ min: 2, max: 262_144 }).map(cpuShares);
const anyWeight = fc.integer({ min: 1, max: 10_000 }).map(cpuWeight);
const anyFormula = fc.constantFrom<WeightFormula>('old', 'new');

describe('CPU shares to cpu.weight', () => {
  test.each([
    [2, 1, 1],
    [10, 1, 4],
    [102, 4, 17],
    [512, 20, 59],
    [1024, 39, 100],
    [2048, 79, 174],
    [10240, 391, 639],
    [262144, 10000, 10000],
  ])('%i shares: old %i, new %i', (shares, old, recent) => {
    expect(weightOfShares(cpuShares(shares), 'old')).toBe(old);
    expect(weightOfShares(cpuShares(shares), 'new')).toBe(recent);
  });

  test('clamps shares as cgroup v1 did', () => {
    for (const formula of ['old', 'new'] as const) {
      expect(weightOfShares(cpuShares(1), formula)).toBe(1);
      expect(weightOfShares(cpuShares(1_000_000), formula)).toBe(10_000);
    }
  });

  test('gives a weight the kernel takes, and more for more, by both formulas', () => {
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

describe('the shares to report for a live weight', () => {
  test('are the stored ones when they give it by either formula', () => {
    fc.assert(
      fc.property(anyShares, anyFormula, anyFormula, (stored, writer, named) => {
        expect(sharesToReport(weightOfShares(stored, writer), stored, named)).toBe(stored);
      }),
    );
  });

  test('are computed when somebody wrote another weight, or nothing is stored', () => {
    expect(weightMatchesShares(cpuWeight(500), cpuShares(1024))).toBe(false);
    const shares = sharesToReport(cpuWeight(500), cpuShares(1024), 'new');
    expect(weightOfShares(shares, 'new')).toBe(500);
    expect(sharesToReport(cpuWeight(100), undefined, 'new')).toBe(1024);
  });

  test('give the weight back whenever any shares do', () => {
    fc.assert(
      fc.property(anyShares, anyFormula, (shares, formula) => {
        const weight = weightOfShares(shares, formula);
        expect(weightOfShares(sharesOfWeight(weight, formula), formula)).toBe(weight);
      }),
    );
  });

  test('are shares for any weight, an idle one included', () => {
    fc.assert(
      fc.property(anyWeight, anyFormula, (weight, formula) => {
        const shares = sharesOfWeight(weight, formula);
        expect(shares).toBeGreaterThanOrEqual(2);
        expect(shares).toBeLessThanOrEqual(262_144);
      }),
    );
    // One weight comes of several shares: the fewest of them by the old formula, the most by the new one.
    expect(sharesOfWeight(cpuWeight(2), 'old')).toBe(29);
    expect(sharesOfWeight(cpuWeight(2), 'new')).toBe(5);
    expect(sharesOfWeight(cpuWeight(0), 'old')).toBe(2);
    expect(sharesOfWeight(cpuWeight(0), 'new')).toBe(2);
    expect(sharesOfWeight(cpuWeight(10_000), 'old')).toBe(262_144);
    expect(sharesOfWeight(cpuWeight(10_000), 'new')).toBe(262_144);
  });

  test('tell which formula a weight was written by', () => {
    expect(formulasOf(cpuWeight(39), cpuShares(1024))).toEqual(['old']);
    expect(formulasOf(cpuWeight(100), cpuShares(1024))).toEqual(['new']);
    expect(formulasOf(cpuWeight(1), cpuShares(2))).toEqual(['old', 'new']);
    expect(formulasOf(cpuWeight(7), cpuShares(1024))).toEqual([]);
  });
});

describe('memory limits of CRI', () => {
  test('0 keeps, -1 removes, a number is a number, from number or bigint', () => {
    expect(memoryMaxOfCri(0)).toBeUndefined();
    expect(memoryMaxOfCri(0n)).toBeUndefined();
    expect(memoryMaxOfCri(-1n)).toBe('max');
    expect(memoryMaxOfCri(67108864n)).toBe(67108864);
    expect(memoryMaxOfCri(2n ** 53n - 1n)).toBe(Number.MAX_SAFE_INTEGER);
  });

  test('are refused with field, value and reason', () => {
    const refusal = (field: string, asked: string, why: string): unknown =>
      expect.objectContaining({ message: `${field}: ${asked}: ${why}`, context: { asked } });
    const negative = 'the only allowed negative number is -1';
    const inexact = 'must be a whole number below 2^53';
    const [limit, swap] = ['memory_limit_in_bytes', 'memory_swap_limit_in_bytes'];
    expect(() => memoryMaxOfCri(-2)).toThrow(refusal(limit, '-2', negative));
    expect(() => memoryMaxOfCri(1.5)).toThrow(refusal(limit, '1.5', inexact));
    expect(() => memoryMaxOfCri(2n ** 53n)).toThrow(refusal(limit, '9007199254740992', 'must be below 2^53'));
    expect(() => swapMaxOfCri(1.5, 'max')).toThrow(refusal(swap, '1.5', inexact));
    expect(() => swapMaxOfCri(-2, 'max')).toThrow(refusal(swap, '-2', negative));
    expect(() => swapMaxOfCri(99, 'max')).toThrow(refusal(swap, '99', 'requires a memory limit'));
    expect(() => swapMaxOfCri(99, bytes(100))).toThrow(refusal(swap, '99', 'below the memory limit 100'));
    expect(() => cpuMaxOfCri(1.5, 0, undefined)).toThrow(refusal('cpu_quota', '1.5', inexact));
    expect(() => cpuMaxOfCri(-2, 0, undefined)).toThrow(refusal('cpu_quota', '-2', negative));
    expect(() => cpuMaxOfCri(0, 1.5, undefined)).toThrow(refusal('cpu_period', '1.5', inexact));
    expect(() => cpuMaxOfCri(0, -2, undefined)).toThrow(refusal('cpu_period', '-2', negative));
    expect(() => cpuSharesOfCri(1.5)).toThrow(refusal('cpu_shares', '1.5', inexact));
    expect(() => cpuSharesOfCri(-2)).toThrow(refusal('cpu_shares', '-2', negative));
  });

  test('takes for no limit what the kernel takes for none', () => {
    expect(swapMaxOfCri(9223372036854771712n, bytes(100))).toBe('max');
    expect(memoryMaxOfCri(9223372036854771712n)).toBe('max');
    expect(memoryMaxOfCri(9223372036854775807n)).toBe('max');
  });

  test.each([-2, -2n, 2n ** 60n, 1.5, Number.NaN, 2 ** 53])('refuses %s', (value) => {
    expect(() => memoryMaxOfCri(value)).toThrow(invalid);
  });

  test('comes back as it went', () => {
    fc.assert(
      fc.property(fc.oneof(fc.constant(-1), fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })), (limit) => {
        expect(criOfMemoryMax(memoryMaxOfCri(limit) ?? bytes(0))).toBe(limit);
      }),
    );
  });

  test('counts memory and swap together in CRI, swap alone in the kernel', () => {
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

describe('CPU limits of CRI', () => {
  const current = { quota: microseconds(20_000), period: microseconds(50_000) };

  test('keep what is 0, each by itself', () => {
    expect(cpuMaxOfCri(0, 0, current)).toBeUndefined();
    expect(cpuMaxOfCri(30_000n, 0n, current)).toEqual({ quota: 30_000, period: 50_000 });
    expect(cpuMaxOfCri(0, 100_000, current)).toEqual({ quota: 20_000, period: 100_000 });
    expect(cpuMaxOfCri(-1, 0, current)).toEqual({ quota: 'max', period: 50_000 });
  });

  test('have the kernel default where nothing is known', () => {
    expect(cpuMaxOfCri(30_000, 0, undefined)).toEqual({ quota: 30_000, period: 100_000 });
    expect(cpuMaxOfCri(0, 50_000, undefined)).toEqual({ quota: 'max', period: 50_000 });
  });

  test.each([
    [999, 0],
    [-2, 0],
    [0, 999],
    [0, 1_000_001],
    [0, -1],
  ])('refuse what the kernel would: quota %i, period %i', (quota, period) => {
    expect(() => cpuMaxOfCri(quota, period, current)).toThrow(invalid);
  });

  test('are reported as CRI has them', () => {
    expect(criOfCpuMax({ quota: 'max', period: microseconds(100_000) })).toEqual({ quota: -1, period: 100_000 });
    expect(criOfCpuMax(current)).toEqual({ quota: 20_000, period: 50_000 });
  });

  test('shares: 0 keeps, the rest is clamped', () => {
    expect(cpuSharesOfCri(0)).toBeUndefined();
    expect(cpuSharesOfCri(1n)).toBe(2);
    expect(cpuSharesOfCri(1024n)).toBe(1024);
    expect(cpuSharesOfCri(2n ** 62n)).toBe(262_144);
    expect(() => cpuSharesOfCri(-1)).toThrow(invalid);
  });
});
