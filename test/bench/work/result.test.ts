import { expect, test } from 'vitest';
import { resultOf } from '../../../bench/work/result.ts';

test('resultOf returns the median, and the 99th percentile only with enough samples', () => {
  const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);
  expect(resultOf('work', 'us', hundred)).toEqual({ work: 'work', unit: 'us', p50: 50, p99: 99, samples: 100 });
  expect(resultOf('work', 'ms', [3, 1, 2])).toEqual({ work: 'work', unit: 'ms', p50: 2, samples: 3 });
});
