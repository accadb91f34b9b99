import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { missingTests, rowsOf } from './named-tests.ts';

const PAGE = 'docs/rules.md';

/** `src/file.ts`: `name` */
const FUNCTION = /`(src\/[^`]+)`: `(\w+)`/g;

test('docs/rules.md names functions and tests that exist', () => {
  const rows = rowsOf(readFileSync(PAGE, 'utf8'));
  expect(rows.length).toBeGreaterThan(30);
  const wrong = rows.flatMap((row) =>
    [...missingFunctions(row), ...missingTests(row)].map(
      (fault) => `${PAGE}, row "${row.split('|')[1]?.trim() ?? row}": ${fault}`,
    ),
  );
  expect(wrong).toEqual([]);
});

function missingFunctions(row: string): readonly string[] {
  const named = [...row.matchAll(FUNCTION)];
  if (named.length === 0) return ['names no function'];
  return named.flatMap(([, file = '', name = '']) => {
    if (!existsSync(file)) return [`no file ${file}`];
    const isExported = new RegExp(`^export (?:async )?(?:function|class|const) ${name}\\b`, 'm');
    return isExported.test(readFileSync(file, 'utf8')) ? [] : [`no export ${name} in ${file}`];
  });
}

test.each(['KEP-1287', 'KEP-6030'])('each file that implements a rule of %s names it in a comment', (kep) => {
  const [section = ''] = readFileSync(PAGE, 'utf8').split(`## ${kep}: `).slice(1).join('').split('\n## ');
  const files = new Set([...section.matchAll(FUNCTION)].map(([, file = '']) => file));
  expect(files.size).toBeGreaterThan(5);
  expect([...files].filter((file) => !readFileSync(file, 'utf8').includes(kep))).toEqual([]);
});
