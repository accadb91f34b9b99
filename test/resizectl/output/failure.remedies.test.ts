import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { remedies } from '../../../src/resizectl/output/failure.ts';

test('remedies equal those of docs/errors.md', () => {
  const rows = readFileSync('docs/errors.md', 'utf8').matchAll(/^\| `([A-Z_]+)` \|.*\| ([^|]*) \|$/gm);
  const documented = [...rows].map(([, reason = '', remedy = '']) => [
    reason,
    remedy.replaceAll('`', '').replace(/\[[^\]]+\]\(([^)]+)\)/g, 'docs/$1'),
  ]);
  expect({ ...remedies }).toEqual(Object.fromEntries(documented));
});
