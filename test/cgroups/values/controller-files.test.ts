import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  assertCpuMax,
  assertCpuWeight,
  formatCpuMax,
  isSameCpuMax,
  parseCpuMax,
  parseCpuWeight,
} from '../../../src/cgroups/values/controller-files.ts';
import { type CpuMax, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';

const anyCpuMax: fc.Arbitrary<CpuMax> = fc.record({
  quota: fc.oneof(fc.constant('max' as const), fc.integer({ min: 1000, max: 1e9 }).map(microseconds)),
  period: fc.integer({ min: 1000, max: 1e6 }).map(microseconds),
});

describe('cpu.max', () => {
  test('cpu.max is parsed as quota and period', () => {
    expect(parseCpuMax('max 100000')).toEqual({ quota: 'max', period: 100000 });
    expect(parseCpuMax('50000 100000')).toEqual({ quota: 50000, period: 100000 });
  });

  test('cpu.max in the range of the kernel is accepted, and is unchanged after formatting and parsing', () => {
    fc.assert(
      fc.property(anyCpuMax, (cpuMax) => {
        expect(isSameCpuMax(parseCpuMax(formatCpuMax(cpuMax)), cpuMax)).toBe(true);
        expect(() => assertCpuMax(cpuMax)).not.toThrow();
      }),
    );
  });

  test.each(['', 'max', '100000', '-1 100000', '1 2 3', 'max max', '0x10 100000'])(
    'cpu.max is rejected with the content %j',
    (text) => {
      expect(() => parseCpuMax(text)).toThrow(
        expect.objectContaining({
          reason: 'CGROUP_UNAVAILABLE',
          message: `cpu.max: unexpected content ${JSON.stringify(text)}`,
          context: { file: 'cpu.max', found: text },
        }),
      );
    },
  );

  test('an error repeats at most 80 characters of cpu.max', () => {
    const found = 'x'.repeat(80);
    expect(() => parseCpuMax(`${found}y`)).toThrow(
      expect.objectContaining({
        message: `cpu.max: unexpected content "${found}"`,
        context: { file: 'cpu.max', found },
      }),
    );
  });

  test('values of cpu.max differ by quota and by period', () => {
    const [a, b, c] = ['1000 100000', '2000 100000', '1000 50000'].map(parseCpuMax);
    expect([isSameCpuMax(a!, a!), isSameCpuMax(a!, b!), isSameCpuMax(a!, c!)]).toEqual([true, false, false]);
  });

  test('cpu.max may have the minimum and the maximum of quota and period', () => {
    for (const text of ['1000 1000', '1000 1000000', '17592186044415 100000'])
      expect(() => assertCpuMax(parseCpuMax(text))).not.toThrow();
  });

  test.each([
    ['max', 999, '999: the period must be 1000 to 1000000 microseconds'],
    ['max', 1_000_001, '1000001: the period must be 1000 to 1000000 microseconds'],
    [999, 100_000, '999: the quota must be at least 1000 microseconds'],
    [0, 100_000, '0: the quota must be at least 1000 microseconds'],
    [2 ** 44, 100_000, '17592186044416: the quota must be at most 17592186044415 microseconds'],
  ] as const)('cpu.max is rejected outside the range of the kernel: %s %s', (quota, period, why) => {
    const cpuMax = { quota: quota === 'max' ? quota : microseconds(quota), period: microseconds(period) };
    expect(() => assertCpuMax(cpuMax)).toThrow(
      expect.objectContaining({
        reason: 'INVALID_VALUE',
        message: `cpu.max: ${why}`,
        context: { file: 'cpu.max', asked: why.split(':')[0] },
      }),
    );
  });
});

describe('cpu.weight', () => {
  test('cpu.weight is parsed as 1 to 10000, or 0 for an idle cgroup', () => {
    expect(['0', '1', '100', '10000'].map(parseCpuWeight)).toEqual([0, 1, 100, 10000]);
    for (const text of ['', '10001', 'max', '1.5', '-1']) expect(() => parseCpuWeight(text)).toThrow(/cpu\.weight/);
  });

  test('cpu.weight cannot be set to 0 or above 10000', () => {
    for (const weight of [1, 10000]) expect(() => assertCpuWeight(cpuWeight(weight))).not.toThrow();
    for (const weight of [0, 10001]) {
      expect(() => assertCpuWeight(cpuWeight(weight))).toThrow(
        expect.objectContaining({
          reason: 'INVALID_VALUE',
          message: `cpu.weight: ${weight}: the weight must be 1 to 10000`,
        }),
      );
    }
  });
});
