import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { Reason } from '../../src/core/errors.ts';
import { families } from '../../src/core/observe/families.ts';
import type { Description } from '../../src/core/observe/family.ts';
import { commandTexts } from '../../src/resizectl/command-table.ts';
import { exitTexts } from '../../src/resizectl/command-texts.ts';
import { parseChanges } from '../../src/resizectl/commands/changes.ts';
import { parseCommandLine } from '../../src/resizectl/program.ts';
import { accepted as ofContainerd } from '../cri-integration/report.ts';
import { grpcName, h2specName } from '../interop/programs.ts';
import { accepted } from '../interop/results.ts';
import { accepted as ofKubernetes } from '../k8s-e2e/selection.ts';
import { admissionTable } from '../real-kubelet/admission/verdicts.ts';
import { withTable } from '../runner/results-reporter.ts';
import { pages } from './commands.ts';

// The gains that follow from the versions. The table of pairs in docs/compatibility.md has to agree with its other
// tables.
const minor = (version: string): number => Number(version.split('.')[1]);

function gains(kubelet: string, containerd: string): string {
  const of = minor(kubelet);
  const [major, release] = containerd.split('.').map(Number) as [number, number];
  const callsPod = of >= 33;
  const storesOnly = major === 2 && release >= 3;
  return [
    of >= 37 ? '(V)' : 'V',
    ...(callsPod ? [storesOnly ? 'C' : 'P'] : []),
    ...(major === 1 ? ['R'] : []),
    ...(of >= 33 ? ['F'] : []),
    ...(of >= 34 ? ['D'] : []),
  ].join(' ');
}

/** Returns all versions of a cell: "1.27 to 1.32", or "1.34, 1.35". */
function versionsOf(cell: string): string[] {
  const [, first, last] = /^(\S+) to (\S+)$/.exec(cell) ?? [];
  if (first === undefined || last === undefined) return cell.replace('containerd ', '').split(', ');
  return Array.from({ length: minor(last) - minor(first) + 1 }, (_, index) => `1.${minor(first) + index}`);
}

test('docs/compatibility.md lists each pair of kubelet and containerd with its gains', () => {
  const page = readFileSync('docs/compatibility.md', 'utf8');
  const text = /## By kubelet and containerd\n([^]*?)\n## /.exec(page)?.[1] ?? '';
  const [head = [], , ...rows] = [...text.matchAll(/^\| (.*) \|$|^\|---.*$/gm)].map(([, row = '']) => row.split(' | '));
  const seen: string[] = [];
  for (const [kubelets = '', ...cells] of rows)
    for (const [index, cell] of cells.entries())
      for (const kubelet of versionsOf(kubelets))
        for (const containerd of versionsOf(head[index + 1] ?? '')) {
          expect([kubelet, containerd, cell]).toEqual([kubelet, containerd, gains(kubelet, containerd)]);
          seen.push(`${kubelet} ${containerd}`);
        }
  const all = Array.from({ length: 11 }, (_, index) => `1.${27 + index}`).flatMap((kubelet) =>
    ['1.6', '1.7', '2.0', '2.1', '2.2', '2.3', '2.4'].map((containerd) => `${kubelet} ${containerd}`),
  );
  expect(seen.sort()).toEqual(all.sort());
});

test('docs/compatibility.md has the versions and accepted differences of npm run nightly -- --only interop', () => {
  const page = readFileSync('docs/compatibility.md', 'utf8');
  const row = page.split('\n').find((line) => line.includes('`npm run nightly -- --only interop` |')) ?? '';
  expect([row.includes(h2specName), row.includes(grpcName)]).toEqual([true, true]);
  expect(acceptedIn(page)).toEqual([...accepted]);
  expect(acceptedIn('\nAccepted differences: none.\n\n')).toEqual([]);
});

test.each([
  ['npm run nightly -- --only k8s-e2e', "Accepted differences of Kubernetes' specs", ofKubernetes],
  ['npm run nightly -- --only cri-integration', "Accepted differences of containerd's tests", ofContainerd],
])('docs/compatibility.md has the differences that %s accepts, with reasons', (_, title, differences) => {
  expect(acceptedIn(readFileSync('docs/compatibility.md', 'utf8'), title)).toEqual([...differences]);
});

test('docs/resize.md has the table of resizes that are requested of Kubernetes and of ResizePod', () => {
  const page = readFileSync('docs/resize.md', 'utf8');
  const current = withTable(page, 'npm run nightly -- --only admission', admissionTable());
  if (process.env['UPDATE_DOCS'] === '1') writeFileSync('docs/resize.md', current);
  expect(page, 'run the test with UPDATE_DOCS=1 to update the page').toBe(current);
});

/** Returns the rows below "Accepted differences:", or none for "Accepted differences: none." */
function acceptedIn(page: string, title = 'Accepted differences'): string[][] {
  const rows = new RegExp(`\\n${title}:(?: none\\.|\\n\\n\\| case \\| reason \\|\\n\\|---\\|---\\|\\n([^]*?))\\n\\n`);
  const [, text = ''] = rows.exec(page) ?? ['', 'missing'];
  return text.split('\n').flatMap((line) => (line === '' ? [] : [line.replaceAll(/^\| | \|$/g, '').split(' | ')]));
}

test('docs/errors.md lists all reasons and no others', () => {
  const page = readFileSync('docs/errors.md', 'utf8');
  const listed = [...page.matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, reason]) => reason);
  expect(listed.sort()).toEqual(Object.values(Reason).sort());
});

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

function metricsTable(): string {
  const rows = Object.values(families).map(
    ({ name, type, labels, help }: Description) =>
      `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ')} | ${help} |`,
  );
  return ['| metric | type | labels | meaning |', '|---|---|---|---|', ...rows].join('\n');
}

test('docs/metrics.md has the current table of metrics', () => {
  const file = 'docs/metrics.md';
  const page = readFileSync(file, 'utf8');
  const fresh = page.replace(/^\| metric \| type .*(?:\n\|.*)*/m, () => metricsTable());
  expect(page).toContain('| metric | type |');
  if (process.env['UPDATE_DOCS'] === '1') writeFileSync(file, fresh);
  expect(readFileSync(file, 'utf8'), 'run the test with UPDATE_DOCS=1 to update the page').toBe(fresh);
});

const page = readFileSync('docs/resizectl.md', 'utf8');

test('docs/resizectl.md names all commands and exit codes, and no others', () => {
  const named = [...page.matchAll(/^\| (`[a-z].*?`) \| /gm)].flatMap(([, names = '']) =>
    [...names.matchAll(/`([^`]+)`/g)].map(([, name]) => name),
  );
  const forms = commandTexts.map(({ name, arguments: args }) =>
    [name, ...args.map(({ form }) => form.replace(/[<>]/g, ''))].join(' '),
  );
  expect(named.filter((name) => !name!.includes('=')).sort()).toEqual(forms.sort());
  const codes = [...page.matchAll(/^\| (\d) \| (.*) \|$/gm)].map(([, code, meaning]) => [Number(code), meaning]);
  expect(codes).toEqual(exitTexts.map((text) => [...text]));
});

test('the command lines and changes in docs/resizectl.md and README.md are valid', () => {
  for (const text of [page, readFileSync('README.md', 'utf8')]) {
    const lines = [...text.matchAll(/^ {4}resizectl (.*)$/gm)].map(([, line]) => line!.trim());
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) {
      const read = parseCommandLine(line.replace(/ \|.*$/, '').split(' '));
      if (read.ask === 'run' && ['plan', 'resize'].includes(read.command)) parseChanges(read.args.slice(1));
    }
  }
  const changes = [...page.matchAll(/^\| (`[^|]*=.*?`) \| /gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([^`]+)`/g)].map(([, change]) => change!),
  );
  expect(changes.length).toBeGreaterThan(8);
  parseChanges(changes);
});
