import { expect, test } from 'vitest';
import {
  exactSize,
  MiB,
  roundedDuration,
  roundedSize,
  roundedSizeWithUnit,
} from '../../../src/core/quantities/sizes.ts';

test('a size is exact in the largest unit that leaves a whole number', () => {
  expect([0, 1000, 1024, 1280 * MiB, 2 ** 30, 2 ** 40].map(exactSize)).toEqual([
    '0',
    '1000',
    '1Ki',
    '1280Mi',
    '1Gi',
    '1Ti',
  ]);
});

test('a size is rounded to one decimal in the largest unit that it reaches', () => {
  expect([0, 1023, 1536, 12.34 * MiB, 2 ** 40].map(roundedSize)).toEqual(['0', '1023', '1.5Ki', '12.3Mi', '1Ti']);
  expect([0, 1536, 2 ** 30].map(roundedSizeWithUnit)).toEqual(['0 B', '1.5 KiB', '1 GiB']);
});

test('a duration is shown in milliseconds below a second, and in seconds otherwise', () => {
  expect([0.12, 45.6, 3400].map(roundedDuration)).toEqual(['0.1 ms', '46 ms', '3.4 s']);
});
