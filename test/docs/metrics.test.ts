import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { families } from '../../src/core/observe/families.ts';
import type { Description } from '../../src/core/observe/family.ts';

function metricsTable(): string {
  const rows = Object.values(families).map(
    ({ name, type, labels, help }: Description) =>
      `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ')} | ${help} |`,
  );
  return ['| metric | type | labels | meaning |', '|---|---|---|---|', ...rows].join('\n');
}

test('docs/metrics.md has the current table of metrics', () => {
  const file = 'docs/metrics.md';
  const page = readFileSync(file, 'utf8');
  const fresh = page.replace(/^\| metric \| type .*(?:\n\|.*)*/m, () => metricsTable());
  expect(page).toContain('| metric | type |');
  if (process.env['UPDATE_DOCS'] === '1') writeFileSync(file, fresh);
  expect(readFileSync(file, 'utf8'), 'run the test with UPDATE_DOCS=1 to update the page').toBe(fresh);
});
