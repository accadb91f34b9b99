import { existsSync, readFileSync } from 'node:fs';

/** `file`: "title", "title"; `other`: "title" */
const FILE = /`(test\/[^`]+)`: ((?:"[^"]+"(?:, )?)+)/g;

/** What is wrong with the tests that a row of a table names by file and title; empty if all of them exist. */
export function missingTests(row: string): readonly string[] {
  const named = [...row.matchAll(FILE)];
  if (named.length === 0) return ['names no test'];
  return named.flatMap(([, file = '', titles = '']) => {
    if (!existsSync(file)) return [`no file ${file}`];
    // As they stand in the source, whichever quotation marks are around them.
    const source = readFileSync(file, 'utf8').replaceAll("\\'", "'");
    const missing = [...titles.matchAll(/"([^"]+)"/g)].filter(([, title = '']) => !source.includes(title));
    return missing.map(([, title = '']) => `no test "${title}" in ${file}`);
  });
}

/** The rows of the tables of a page whose last column says `shown by`. */
export function rowsOf(page: string): readonly string[] {
  const tables = page.split(/\n(?=\| rule .*\| shown by \|\n|\| threat \| shown by \|\n)/).slice(1);
  return tables.flatMap((table) => /^(?:\|.*\n)+/.exec(table)?.[0].trim().split('\n').slice(2) ?? []);
}
