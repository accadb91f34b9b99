import { existsSync, globSync } from 'node:fs';
import { sep } from 'node:path';
import { expect, test } from 'vitest';

test('the name of each test below a folder of src begins with the name of its source file', () => {
  const folders = globSync('src/*/').map((folder) => folder.split(sep)[1]);
  const tests = globSync('test/**/*.test.ts').filter((file) => folders.includes(file.split(sep)[1]));
  expect(tests.length).toBeGreaterThan(100);
  const tested = (file: string): string => file.replace(/^test/, 'src').replace(/(\/[^/.]+)[^/]*$/, '$1.ts');
  expect(tests.filter((file) => !existsSync(tested(file)))).toEqual([]);
});
