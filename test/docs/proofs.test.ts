import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** `file`: "title", "title"; `other`: "title" */
const FILE = /`(test\/[^`]+)`: ((?:"[^"]+"(?:, )?)+)/g;

test.each([
  ['docs/proofs.md', 40],
  ['docs/security.md', 15],
])('%s names tests that there are', (file, least) => {
  const page = readFileSync(file, 'utf8');
  // Of other tables than those whose last column says so nothing is to be shown.
  const tables = page.split(/\n(?=\| \w+ \| shown by \|\n)/).slice(1);
  const rows = tables.flatMap((table) => /^(?:\|.*\n)+/.exec(table)?.[0].trim().split('\n').slice(2) ?? []);
  expect(rows.length).toBeGreaterThan(least);
  for (const row of rows) {
    const named = [...row.matchAll(FILE)];
    expect(named, row).not.toEqual([]);
    for (const [, file = '', titles = ''] of named) {
      // As they stand in the source, whichever quotation marks are around them.
      const source = readFileSync(file, 'utf8').replaceAll("\\'", "'");
      for (const [, title = ''] of titles.matchAll(/"([^"]+)"/g))
        expect(source.includes(title), `${file}: ${title}`).toBe(true);
    }
  }
});
