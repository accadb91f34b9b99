import { expect, test } from 'vitest';
import { type Window, changeOf, p99, percentile } from './windows.ts';

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
