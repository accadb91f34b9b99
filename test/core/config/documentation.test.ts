import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { configurationExample } from '../../../src/core/config/documentation.ts';
import { configKeys, flagOf, settingOf } from '../../../src/core/config/schema.ts';

const rows = configKeys.map((key) => {
  const { allowed, description, fallback } = settingOf(key);
  return `| \`${key}\` | \`${flagOf(key)}\` | ${fallback === '' ? 'empty' : `\`${fallback}\``} | ${allowed} | ${description} |`;
});
const table = ['| key in the file | flag | default | allowed | meaning |', '|---|---|---|---|---|', ...rows].join('\n');

test('docs/configuration.md has the current settings, and a file with their default values', () => {
  const file = 'docs/configuration.md';
  const page = readFileSync(file, 'utf8');
  expect(page).toContain('| key in the file |');
  const fresh = page
    .replace(/^\| key in the file .*(?:\n\|.*)*/m, () => table)
    .replace(/(?<=## The file\n[^`]*(?:`\w+`[^`]*)*```yaml\n)[^`]*/, () =>
      configurationExample({ isCommentedOut: false }),
    );
  if (process.env['UPDATE_DOCS'] === '1') writeFileSync(file, fresh);
  expect(readFileSync(file, 'utf8'), 'run the test with UPDATE_DOCS=1 to update the page').toBe(fresh);
});
