import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { pages } from './commands.ts';

const all = [...new Set([...pages, ...readdirSync('.').filter((name) => name.endsWith('.md'))])];

test('links between pages lead to files and headings that exist', () => {
  const broken = all.flatMap((page) =>
    linksOf(page)
      .filter((link) => !exists(page, link))
      .map((link) => `${page}: ${link}`),
  );
  expect(broken).toEqual([]);
});

test('every page of docs/ is in the index', () => {
  const index = linksOf('docs/README.md').map((link) => link.replace(/#.*$/, ''));
  const missing = readdirSync('docs').filter(
    (name) => name.endsWith('.md') && name !== 'README.md' && !index.includes(name),
  );
  expect(missing).toEqual([]);
});

/** Returns the targets of a page's links, without those to other sites. */
const linksOf = (page: string): readonly string[] =>
  [...readFileSync(page, 'utf8').matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, link = '']) => link)
    .filter((link) => !link.startsWith('https:'));

function exists(page: string, link: string): boolean {
  const [path = '', anchor] = link.split('#');
  const file = path === '' ? page : join(dirname(page), path);
  return existsSync(file) && (anchor === undefined || anchorsOf(file).includes(anchor));
}

/** Returns the anchors that GitHub creates for headings. */
const anchorsOf = (page: string): readonly string[] =>
  [...readFileSync(page, 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .replaceAll(' ', '-'),
  );
