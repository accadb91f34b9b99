import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, sep } from 'node:path';
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

test('the tests of a folder of src mirror it: the name of a test begins with that of its file', () => {
  const folders = globSync('src/*/').map((folder) => folder.split(sep)[1]);
  const tests = globSync('test/**/*.test.ts').filter((file) => folders.includes(file.split(sep)[1]));
  expect(tests.length).toBeGreaterThan(100);
  const tested = (file: string): string => file.replace(/^test/, 'src').replace(/(\/[^/.]+)[^/]*$/, '$1.ts');
  expect(tests.filter((file) => !existsSync(tested(file)))).toEqual([]);
});
