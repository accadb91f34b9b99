import { expect, test } from 'vitest';
import { reportedShares } from '../../../src/core/quantities/numbers.ts';

test.each([
  [102, 102],
  [1024n, 1024],
  [0n, undefined],
  [-1n, undefined],
  [2n ** 62n, undefined],
  [1.5, undefined],
])('shares that a runtime reports as %s are %s', (reported, shares) => {
  expect(reportedShares(reported)).toBe(shares);
});
