import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { missingTests, rowsOf } from './named-tests.ts';

const PAGE = 'docs/rules.md';

/** Faults that once brought the shim or the node down. */
const FINDINGS = ['H1', 'H2', 'H3', 'H4', 'M1', 'M2', 'M3', 'M4', 'M5', 'M6', 'L1', 'L2', 'L3', 'L4'];

/** Tags at the beginning of a title, such as `KEP-1287: ` or `A7, A8: `. */
const TAGS = /^(?:KEP-\d+|kubernetes \d+|[AHML]\d+(?:, [AHML]\d+)*|install|systemd|upgrade): /;

/** Tags in the order of their sections, with the heading of each section. */
const SECTIONS: readonly (readonly [tag: RegExp, heading: string])[] = [
  [/^KEP-1287$/, 'KEP-1287: in-place update of pod resources'],
  [/^KEP-6030$/, 'KEP-6030: resize of memory-backed volumes'],
  [/^KEP-2570$/, 'KEP-2570: memory QoS'],
  [/^KEP-2837$/, 'KEP-2837: pod-level resources'],
  [/^systemd$/, 'The systemd cgroup driver'],
  [/^upgrade$/, 'Upgrades, bypass and packages'],
  [/^install$/, 'Installation and removal'],
  [/^A\d/, 'Faults with pods of Kubernetes'],
  [/^kubernetes /, 'Issues of Kubernetes'],
  [/^[HML]\d/, 'Faults that brought down the shim or the node'],
];

interface Rule {
  readonly tag: string;
  readonly file: string;
  readonly title: string;
}

const filesOf = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => `${folder}/${file}`)
    .toSorted();

const rules = filesOf('test').flatMap(rulesOf);

/** Returns the tests of a file whose title, or the title of a group around them, has a tag, and its tagged cases. */
function rulesOf(file: string): readonly Rule[] {
  const text = readFileSync(file, 'utf8');
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: Rule[] = [];
  const visit = (node: ts.Node, outer: string | undefined): void => {
    const { kind, title } = titleIn(node, source);
    const [prefix] = TAGS.exec(title) ?? [];
    const tag = prefix?.slice(0, -2) ?? (kind === 'case' ? undefined : outer);
    if (kind !== undefined && kind !== 'describe' && tag !== undefined)
      found.push({ tag, file, title: title.slice(prefix?.length ?? 0) });
    ts.forEachChild(node, (child) => visit(child, kind === 'describe' ? tag : outer));
  };
  visit(source, undefined);
  return found;
}

/** Returns the title of a group, of a test or of a case with a property `title`, with `…` for each placeholder. */
function titleIn(node: ts.Node, source: ts.SourceFile): { kind?: 'describe' | 'test' | 'case'; title: string } {
  const none = { title: '' };
  if (ts.isPropertyAssignment(node) && node.name.getText(source) === 'title')
    return { kind: 'case', title: textOf(node.initializer, source) };
  if (!ts.isCallExpression(node)) return none;
  const [, kind] = /^(describe|test)(?:\.each|\b(?!\.))/.exec(node.expression.getText(source)) ?? [];
  const title = textOf(node.arguments[0], source);
  return title !== '' && (kind === 'describe' || kind === 'test') ? { kind, title } : none;
}

/** Returns the text of a string literal, empty for any other expression. */
function textOf(literal: ts.Expression | undefined, source: ts.SourceFile): string {
  if (literal === undefined || !(ts.isStringLiteralLike(literal) || ts.isTemplateExpression(literal))) return '';
  const text = ts.isStringLiteralLike(literal) ? literal.text : literal.getText(source).slice(1, -1);
  return text.replaceAll(/%(?:\.\d+)?[a-z]|\$\{[^}]*\}|\$[a-z][\w.]*/gi, '…');
}

/** Returns one section of the page: its rules by test file, after the files of `src` that name its KEP. */
function sectionOf([tag, heading]: (typeof SECTIONS)[number]): string {
  const ofSection = rules.filter((rule) => tag.test(rule.tag));
  const kep = /^KEP-\d+/.exec(heading)?.[0];
  const files = kep === undefined ? [] : filesOf('src').filter((file) => readFileSync(file, 'utf8').includes(kep));
  const implemented = files.length === 0 ? [] : [`Code: ${files.map((file) => `\`${file}\``).join(', ')}`, ''];
  const lines = [...Map.groupBy(ofSection, ({ file }) => file)].flatMap(([file, ofFile]) => [
    `\`${file}\`:`,
    '',
    ...ofFile.map(({ tag: label, title }) =>
      label === kep || (kep === undefined && !/\d/.test(label)) ? `- ${title}` : `- ${label}: ${title}`,
    ),
    '',
  ]);
  return [`## ${heading}`, '', ...implemented, ...lines].join('\n');
}

test('docs/rules.md has all rules that titles of tests declare', () => {
  const page = readFileSync(PAGE, 'utf8');
  const [introduction = ''] = page.split('\n## ');
  const fresh = `${introduction}\n${SECTIONS.map(sectionOf).join('\n').trimEnd()}\n`;
  if (process.env['UPDATE_DOCS'] === '1') writeFileSync(PAGE, fresh);
  expect(readFileSync(PAGE, 'utf8'), 'run the test with UPDATE_DOCS=1 to update the page').toBe(fresh);
});

test('each rule has a section in docs/rules.md', () => {
  expect(rules.length).toBeGreaterThan(300);
  expect(rules.filter((rule) => !SECTIONS.some(([tag]) => tag.test(rule.tag)))).toEqual([]);
});

test.each(FINDINGS)('%s has a test with its number in the title', (finding) => {
  expect(rules.filter(({ tag }) => tag === finding)).not.toEqual([]);
});

test('docs/security.md names tests that exist', () => {
  const rows = rowsOf(readFileSync('docs/security.md', 'utf8'));
  expect(rows.length).toBeGreaterThan(15);
  const wrong = rows.flatMap((row) => missingTests(row).map((fault) => `${row.split('|')[1]?.trim()}: ${fault}`));
  expect(wrong).toEqual([]);
});
