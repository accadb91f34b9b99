import { expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { Window } from './figures.ts';
import { changeOf, figuresText, p99, percentile } from './figures.ts';

test('the figures of a soak are one line, with the ratio of the percentiles', () => {
  const figures = {
    resizes: 7000,
    pods: 70,
    seconds: 900,
    resident: { first: 95.25 * MiB, last: 97 * MiB },
    descriptors: { first: 30, last: 31 },
    p99: { first: 200, last: 210.4 },
  };
  expect(figuresText(figures)).toBe(
    '7000 resizes and 70 replaced pods in 900 s, first and last: 95.3 and 97.0 MiB resident, 30 and 31 descriptors, ' +
      '200 and 210 ms p99 (1.05 times)',
  );
});

const window = (resident: number, durations: readonly number[] = [1]): Window => ({
  durations,
  resident,
  descriptors: 20,
});

test('percentile returns the value of the nearest rank, and throws without numbers', () => {
  const numbers = Array.from({ length: 100 }, (_, index) => 100 - index);
  expect([percentile(numbers, 0.5), percentile(numbers, 0.99), percentile([7], 0.99)]).toEqual([50, 99, 7]);
  expect(() => percentile([], 0.5)).toThrow('no numbers');
});

test('changeOf ignores the warm-up and single outliers', () => {
  const windows = [900, 10, 11, 700, 40, 12, 600, 13].map((resident) => window(resident));
  expect(changeOf(windows, ({ resident }) => resident)).toEqual({ first: 11, last: 13 });
});

test('changeOf finds a slower end', () => {
  const windows = Array.from({ length: 7 }, (_, index) => window(1, index < 4 ? [10, 10] : [10, 20]));
  expect(changeOf(windows, p99)).toEqual({ first: 10, last: 20 });
});

test('too few windows are rejected', () => {
  expect(() => changeOf([window(1)], p99)).toThrow('1 windows: at least 7 are needed');
});
