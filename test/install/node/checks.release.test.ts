import { expect, test } from 'vitest';
import { isAtLeast, numbersOf } from '../../../src/install/node/checks.ts';

test('a release is compared by the numbers at its start', () => {
  expect(numbersOf('6.1.0-18-amd64')).toEqual([6, 1, 0]);
  expect(numbersOf('1.7.24~ds1')).toEqual([1, 7, 24]);
  expect(numbersOf('unknown')).toEqual([]);
});

test.each([
  ['5.19', '5.19', true],
  ['5.19.0', '5.19', true],
  ['5.4.0-200-generic', '5.19', false],
  ['5.100', '5.19', true],
  ['6', '5.19', true],
  ['6', '6.0.1', false],
  ['20.18.3', '20.19.0', false],
  ['unknown', '1.6', false],
])('the release %s is at least %s: %s', (found, least, expected) => {
  expect(isAtLeast(found, least)).toBe(expected);
});
