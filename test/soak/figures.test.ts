import { expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { figuresText } from './figures.ts';

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
