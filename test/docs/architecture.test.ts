import { existsSync, globSync } from 'node:fs';
import { sep } from 'node:path';
import { expect, test } from 'vitest';

test('the tests of a folder of src mirror it: the name of a test begins with that of its file', () => {
  const folders = globSync('src/*/').map((folder) => folder.split(sep)[1]);
  const tests = globSync('test/**/*.test.ts').filter((file) => folders.includes(file.split(sep)[1]));
  expect(tests.length).toBeGreaterThan(100);
  const tested = (file: string): string => file.replace(/^test/, 'src').replace(/(\/[^/.]+)[^/]*$/, '$1.ts');
  expect(tests.filter((file) => !existsSync(tested(file)))).toEqual([]);
});
