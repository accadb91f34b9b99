import { describe, expect, test } from 'vitest';
import { Samples, median, percentile } from '../../bench/statistics.ts';

describe('percentile', () => {
  test('percentile returns the smallest value that covers the given share of all values', () => {
    const hundred = Array.from({ length: 100 }, (_, index) => index + 1);
    expect([0.01, 0.5, 0.99, 1].map((share) => percentile(hundred, share))).toEqual([1, 50, 99, 100]);
  });

  test('percentile returns the only value of a single sample', () => {
    expect(percentile([7], 0.5)).toBe(7);
    expect(percentile([7], 0.99)).toBe(7);
  });

  test('percentile throws RangeError without values', () => {
    expect(() => percentile([], 0.5)).toThrow(RangeError);
  });
});

test('median accepts values in any order', () => {
  expect(median([30, 1, 2])).toBe(2);
});

test('Samples grows beyond its initial capacity, and returns sorted numbers', () => {
  const samples = new Samples();
  for (let value = 10_000; value > 0; value -= 1) samples.add(value);
  const sorted = samples.sorted();
  expect([samples.count, sorted.length, sorted[0], sorted[9999]]).toEqual([10_000, 10_000, 1, 10_000]);
});
