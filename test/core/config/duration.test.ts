import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { duration, durationForm, parseDuration } from '../../../src/core/config/duration.ts';

describe('a duration', () => {
  test.each([
    ['0', 0],
    ['0s', 0],
    ['500ms', 500],
    ['30s', 30_000],
    ['2m', 120_000],
    ['1h', 3_600_000],
    ['1m30s', 90_000],
    ['1h1m1s1ms', 3_661_001],
    ['1.5s', 1500],
    ['0.125s', 125],
    ['1.5ms', 2],
    ['1.4ms', 1],
    ['999999999ms', 999_999_999],
    ['596h', 2_145_600_000],
    ['2147483s647ms', 2_147_483_647],
  ])('the duration %s is %d milliseconds', (text, milliseconds) => {
    expect(parseDuration(text)).toBe(milliseconds);
  });

  test.each([
    '',
    '1',
    '00',
    's',
    '-1s',
    '+1s',
    '1 s',
    ' 1s',
    '1s ',
    '1d',
    '1us',
    '.5s',
    '1.s',
    '1.2345s',
    '1.5.5s',
    '1S',
    'x1s',
  ])('the duration %j is invalid', (text) => {
    expect(parseDuration(text)).toBeUndefined();
  });

  test('a duration above the maximum of a timer is invalid, because the timer would fire at once', () => {
    expect(parseDuration('2147483s648ms')).toBeUndefined();
    expect(parseDuration('597h')).toBeUndefined();
  });

  test('a duration is the sum of its parts', () => {
    const part = fc.record({ amount: fc.nat(500), unit: fc.constantFrom('ms', 's', 'm') });
    const factor = { ms: 1, s: 1000, m: 60_000 } as const;
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 5 }), (parts) => {
        const text = parts.map(({ amount, unit }) => `${amount}${unit}`).join('');
        const sum = parts.reduce((total, { amount, unit }) => total + amount * factor[unit], 0);
        expect(parseDuration(text)).toBe(sum);
      }),
    );
  });

  test('a duration in a setting is parsed, or rejected with the expected format', () => {
    expect(duration.parse('2m')).toBe(120_000);
    expect(duration.safeParse('soon').error?.issues).toMatchObject([{ message: `must be ${durationForm}` }]);
    expect(durationForm).toBe('a duration such as 500ms, 30s or 1m30s (units: ms, s, m, h), at most 596h');
  });
});
