import { expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { compareLimits } from '../../../src/sandbox/plan/amounts.ts';

test('compareLimits orders by size, with no limit as the largest', () => {
  expect(compareLimits(bytes(1), bytes(2))).toBeLessThan(0);
  expect(compareLimits(bytes(2), bytes(1))).toBeGreaterThan(0);
  expect(compareLimits('max', bytes(1))).toBeGreaterThan(0);
  expect(compareLimits(bytes(1), 'max')).toBeLessThan(0);
  expect(compareLimits('max', 'max')).toBe(0);
  expect(compareLimits(bytes(1), bytes(1))).toBe(0);
});
