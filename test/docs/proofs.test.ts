import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
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

/** The faults that once brought the shim or the node down. */
const FINDINGS = ['H1', 'H2', 'H3', 'H4', 'M1', 'M2', 'M3', 'M4', 'M5', 'M6', 'L1', 'L2', 'L3', 'L4'];

test.each(FINDINGS)('%s has a test with its number in the title', (finding) => {
  const title = new RegExp(`(?:describe|test)\\((?:\\n\\s*)?'${finding}: |title: '${finding}: `);
  const sources = readdirSync('test', { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  expect(sources.filter((file) => title.test(readFileSync(join('test', file), 'utf8')))).not.toEqual([]);
});
