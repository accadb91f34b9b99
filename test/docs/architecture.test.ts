import { globSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { expect, test } from 'vitest';

test('no folder of src or test has more files of its own than docs/architecture.md allows', () => {
  const rule = /No folder of `src` or `test` has more than (\d+) TypeScript files of its own/;
  const limit = Number(rule.exec(readFileSync('docs/architecture.md', 'utf8'))?.[1]);
  const files = globSync(['src/**/*.ts', 'test/**/*.ts']);
  const folders = Map.groupBy(files, (file) => dirname(file));
  expect(folders.size).toBeGreaterThan(100);
  const full = [...folders].filter(([, own]) => !(own.length <= limit));
  expect(full.map(([folder, own]) => `${folder}: ${own.length} files`)).toEqual([]);
});
