import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandGlob } from '../../../src/install/host/systemd.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'glob-'));
  for (const name of ['a', 'b']) mkdirSync(join(folder, name));
  for (const name of ['a/b.env', 'a/B.env', 'a/_.env', 'a/.z.env', 'a/x-y.env', 'a/{b,B}.env', 'a/[.conf', 'b/b.env'])
    writeFileSync(join(folder, name), '');
});
afterAll(() => rmSync(folder, { recursive: true }));

test.each([
  ['a/*.env', ['a/B.env', 'a/_.env', 'a/b.env', 'a/x-y.env', 'a/{b,B}.env']],
  ['a/?.env', ['a/B.env', 'a/_.env', 'a/b.env']],
  ['a/[!_B].env', ['a/b.env']],
  ['a/[A-C].env', ['a/B.env']],
  ['a/.?.env', ['a/.z.env']],
  ['[ab]/b.env', ['a/b.env', 'b/b.env']],
  ['*/{b,B}.env', ['a/{b,B}.env']],
  ['a/[[]*', ['a/[.conf']],
  ['a/\\[.c*', ['a/[.conf']],
  ['a/[.conf', ['a/[.conf']],
  ['none/*.env', []],
  ['a/*.yaml', []],
  ['none/b.env', ['none/b.env']],
])('the pattern %s expands to %j', async (pattern, expected) => {
  expect(await expandGlob(join(folder, pattern))).toEqual(expected.map((name) => join(folder, name)));
});
