import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ShimError } from '../../../src/core/errors.ts';
import type { Bytes, CpuMax } from '../../../src/core/quantities/numbers.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import {
  compareLimits,
  cpuMaxOf,
  formatCpuLimit,
  formatMemory,
  formatMilli,
  formatShares,
  readCpuLimit,
  readCpuRequest,
  readMemoryLimit,
  readMemoryRequest,
} from '../../../src/sandbox/plan/amounts.ts';
import { cases } from '../../support/property-cases.ts';

const readers = { readCpuLimit, readCpuRequest, readMemoryLimit, readMemoryRequest };
const texts = fc.oneof(
  fc.string(),
  fc.stringMatching(/^[-+]?[0-9.]{0,20}(m|u|n|k|Ki|M|Mi|G|Gi|E|Ei|e[0-9]{1,2})?$/),
  fc.constantFrom('max', '-1', '', '0', '0m', '-0', 'MAX'),
);

describe('amounts of CPU and memory', () => {
  test.each(Object.entries(readers))(
    '%s returns an exact number or nothing, or throws an error with field and value, for any text',
    (_, read) => {
      fc.assert(
        fc.property(texts, (text) => {
          let value: number | string | undefined;
          try {
            value = read(text, 'here');
          } catch (error) {
            if (!(error instanceof ShimError)) throw error;
            expect(error).toMatchObject({ code: 3, reason: 'INVALID_VALUE', context: { field: 'here' } });
            expect(error.message.startsWith('here: "')).toBe(true);
            return;
          }
          if (value === 'max') expect(['max', '-1']).toContain(text);
          else expect(value === undefined || (Number.isSafeInteger(value) && Number(value) > 0)).toBe(true);
        }),
        cases(2000),
      );
    },
  );

  test('a CPU amount does not change when it is formatted and read again', () => {
    fc.assert(
      fc.property(fc.integer({ min: 10, max: 10_000_000 }), (milli) => {
        const cpuMax = cpuMaxOf(milli);
        expect(cpuMax.quota).toBe(milli * 100);
        expect(readCpuLimit(formatCpuLimit(cpuMax), 'x')).toBe(milli);
        expect(readCpuLimit(formatMilli(milli), 'x')).toBe(milli);
      }),
    );
  });

  test('formats a CPU amount in the shortest form', () => {
    expect([2000, 500, 1500, 100].map((milli) => formatCpuLimit(cpuMaxOf(milli)))).toEqual([
      '2',
      '500m',
      '1500m',
      '100m',
    ]);
    expect([1000, 999, 0].map(formatMilli)).toEqual(['1', '999m', '0']);
  });

  test.each([
    ['readCpuLimit', '175921860444m', 175_921_860_444],
    ['readMemoryLimit', '4096', 4096],
    ['readMemoryLimit', '4Ki', 4096],
    ['readMemoryRequest', '1', 1],
  ] as const)('%s accepts %s', (name, text, value) => {
    expect(readers[name](text, 'here')).toBe(value);
  });

  test.each([
    ['readCpuLimit', '175921860445m', 'here: "175921860445m": more than the kernel accepts'],
    ['readCpuLimit', 'one', 'here: "one": expected a CPU quantity such as "500m" or "1.5"'],
    ['readCpuLimit', '0', 'here: "0": use "max" to remove the limit'],
    ['readCpuRequest', '0m', 'here: "0m": leave it out to keep the request'],
    ['readMemoryLimit', '0Mi', 'here: "0Mi": use "max" to remove the limit'],
    ['readMemoryRequest', '0', 'here: "0": leave it out to keep the request'],
    ['readMemoryLimit', '4095', 'here: "4095": less than a page of memory, 4096 bytes'],
    ['readMemoryLimit', 'much', 'here: "much": expected a memory quantity such as "256Mi"'],
  ] as const)('%s rejects %s with a reason', (name, text, message) => {
    expect(() => readers[name](text, 'here')).toThrow(expect.objectContaining({ message }));
  });

  test('formats a CPU amount that is not a whole number of millicores in millionths', () => {
    const of = (quota: number, period: number): CpuMax => ({
      quota: microseconds(quota),
      period: microseconds(period),
    });
    expect(formatCpuLimit(of(33_333, 100_000))).toBe('333330u');
    expect(formatCpuLimit(of(1000, 3000))).toBe('333334u');
    expect(formatCpuLimit({ quota: 'max', period: microseconds(1000) })).toBe('max');
  });

  test('a CPU request does not change when it is converted to shares and back', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 256_000 }), (milli) => {
        expect(formatShares(milliCpuToShares(milli))).toBe(formatMilli(milli));
      }),
    );
  });

  test('a memory amount does not change, to the byte, when it is formatted and read again', () => {
    fc.assert(
      fc.property(fc.integer({ min: 4096, max: 2 ** 50 }), fc.constantFrom(1, 1024, MiB), (count, unit) => {
        const size = Math.min(count * unit, 2 ** 52);
        expect(readMemoryLimit(formatMemory(bytes(size)), 'x')).toBe(size);
      }),
    );
    const shown = ['256Mi', '1Gi', '1Ti', '1025Gi', '4Ki', '268435457', '1536Mi', 'max'];
    const sizes = [256 * MiB, 2 ** 30, 2 ** 40, 1025 * 2 ** 30, 4096, 256 * MiB + 1, 1.5 * 2 ** 30];
    expect([...sizes.map((size) => formatMemory(bytes(size))), formatMemory('max')]).toEqual(shown);
    expect(formatMemory(0 as Bytes)).toBe('0');
  });
});

test('compareLimits orders by size, with no limit as the largest', () => {
  expect(compareLimits(bytes(1), bytes(2))).toBeLessThan(0);
  expect(compareLimits(bytes(2), bytes(1))).toBeGreaterThan(0);
  expect(compareLimits('max', bytes(1))).toBeGreaterThan(0);
  expect(compareLimits(bytes(1), 'max')).toBeLessThan(0);
  expect(compareLimits('max', 'max')).toBe(0);
  expect(compareLimits(bytes(1), bytes(1))).toBe(0);
});
