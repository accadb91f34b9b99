import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** `file`: "title", "title"; `other`: "title" */
const FILE = /`(test\/[^`]+)`: ((?:"[^"]+"(?:, )?)+)/g;

test('docs/proofs.md names tests that there are', () => {
  const page = readFileSync('docs/proofs.md', 'utf8');
  const rows = page.split('\n').filter((line) => line.startsWith('|') && !/^\| (rule|---)|^\|---/.test(line));
  expect(rows.length).toBeGreaterThan(40);
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
