import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { missingTests, rowsOf } from './named-tests.ts';

test.each([
  ['docs/proofs.md', 40],
  ['docs/security.md', 15],
])('%s names tests that exist', (file, least) => {
  const rows = rowsOf(readFileSync(file, 'utf8'));
  expect(rows.length).toBeGreaterThan(least);
  const wrong = rows.flatMap((row) =>
    missingTests(row).map((fault) => `${file}: ${row.split('|')[1]?.trim()}: ${fault}`),
  );
  expect(wrong).toEqual([]);
});
