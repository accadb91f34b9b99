import { existsSync, readFileSync } from 'node:fs';

/** `file`: "title", "title"; `other`: "title" */
const FILE = /`(test\/[^`]+)`: ((?:"[^"]+"(?:, )?)+)/g;

/** Returns what is wrong with the tests that a row of a table names by file and title; empty if all of them exist. */
export function missingTests(row: string): readonly string[] {
  const named = [...row.matchAll(FILE)];
  if (named.length === 0) return ['names no test'];
  return named.flatMap(([, file = '', titles = '']) => {
    if (!existsSync(file)) return [`no file ${file}`];
    // The title as the source has it, in any quotation marks.
    const source = readFileSync(file, 'utf8').replaceAll("\\'", "'");
    const missing = [...titles.matchAll(/"([^"]+)"/g)].filter(([, title = '']) => !source.includes(title));
    return missing.map(([, title = '']) => `no test "${title}" in ${file}`);
  });
}

/** Returns the rows of those tables of a page whose last column is `shown by`. */
export function rowsOf(page: string): readonly string[] {
  const tables = page.split(/\n(?=\| rule .*\| shown by \|\n|\| threat \| shown by \|\n)/).slice(1);
  return tables.flatMap((table) => /^(?:\|.*\n)+/.exec(table)?.[0].trim().split('\n').slice(2) ?? []);
}
