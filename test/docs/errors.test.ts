import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { Reason } from '../../src/core/errors/index.ts';

test('docs/errors.md lists every reason, and no other', () => {
  const page = readFileSync('docs/errors.md', 'utf8');
  const listed = [...page.matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, reason]) => reason);
  expect(listed.sort()).toEqual(Object.values(Reason).sort());
});
