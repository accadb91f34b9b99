import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { Reason } from '../../src/core/errors.ts';

test('docs/errors.md lists all reasons and no others', () => {
  const page = readFileSync('docs/errors.md', 'utf8');
  const listed = [...page.matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, reason]) => reason);
  expect(listed.sort()).toEqual(Object.values(Reason).sort());
});
