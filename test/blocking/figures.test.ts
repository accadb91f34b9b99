import { expect, test } from 'vitest';
import { tableText } from './figures.ts';

test('the table lists the slowest rows first, and ends with a row for all calls', () => {
  const fast = { what: 'a', when: 'resizes', calls: ['open', 'read'], durations: [1, 2, 3] };
  const slow = { what: 'b', when: 'the start', calls: ['stat'], durations: [4] };
  expect(
    tableText({ rows: [fast, slow], unknown: [] })
      .split('\n')
      .slice(2),
  ).toEqual([
    '| b | the start | stat | 1 | 4.000 ms | 4.000 ms | 4.000 ms |',
    '| a | resizes | open, read | 3 | 2.000 ms | 3.000 ms | 3.000 ms |',
    '| all |  |  | 4 | 2.000 ms | 4.000 ms | 4.000 ms |',
  ]);
});
