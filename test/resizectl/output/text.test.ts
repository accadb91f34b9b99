import { describe, expect, test } from 'vitest';
import { durationText, limitText, table } from '../../../src/resizectl/output/text.ts';

describe('texts of resizectl', () => {
  test('a table has aligned columns, and replaces control characters in names', () => {
    expect(
      table([
        ['A', 'LONGER', 'C'],
        ['one', 'x', ''],
        ['\u001b[2Jtwo', 'y\nz', 'c'],
      ]),
    ).toBe('A         LONGER   C\none       x\n?[2Jtwo   y?z      c\n');
  });

  test('limits and durations are in the largest unit that fits', () => {
    expect(['max', '256Mi', '128974848', '500m', ''].map(limitText)).toEqual(['max', '256Mi', '123Mi', '500m', '']);
    const durations = [
      [0, 123_400],
      [0, 45_600_000],
      [3, 440_000_000],
    ] as const;
    expect(durations.map(([seconds, nanos]) => durationText({ seconds, nanos }))).toEqual(['0.1 ms', '46 ms', '3.4 s']);
  });
});
