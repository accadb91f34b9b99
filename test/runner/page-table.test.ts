import { expect, test } from 'vitest';
import { markdownTable, withTable } from './page-table.ts';

test('the first row is the head of the table', () => {
  expect(
    markdownTable([
      ['call', 'time'],
      ['read', '1 ms'],
    ]),
  ).toBe('| call | time |\n| --- | --- |\n| read | 1 ms |');
});

test('replaces only the text between the marks of the command', () => {
  const page = 'before\n<!-- npm run a: begin -->\n\nold\n\n<!-- npm run a: end -->\nafter\n';
  expect(withTable(page, 'npm run a', 'new')).toBe(page.replace('old', 'new'));
  expect(() => withTable(page, 'npm run b', 'new')).toThrow('the page lacks the marks <!-- npm run b: begin -->');
});
