import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { grpcName, h2specName } from '../interop/programs.ts';
import { accepted as ofContainerd } from '../cri-integration/known.ts';
import { accepted } from '../interop/results/accepted.ts';
import { accepted as ofKubernetes } from '../k8s-e2e/accepted.ts';

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
  const listed = page.replace(
    'Accepted differences: none.',
    'Accepted differences:\n\n| case | reason |\n|---|---|\n| a | b |\n',
  );
  expect(acceptedIn(listed)).toEqual([['a', 'b']]);
});

test.each([
  ['npm run nightly -- --only k8s-e2e', "Accepted differences of Kubernetes' specs", ofKubernetes],
  ['npm run nightly -- --only cri-integration', "Accepted differences of containerd's tests", ofContainerd],
])('docs/compatibility.md has the differences that %s accepts, with reasons', (_, title, differences) => {
  expect(acceptedIn(readFileSync('docs/compatibility.md', 'utf8'), title)).toEqual([...differences]);
});

/** Returns the rows below "Accepted differences:", or none for "Accepted differences: none." */
function acceptedIn(page: string, title = 'Accepted differences'): string[][] {
  const rows = new RegExp(`\\n${title}:(?: none\\.|\\n\\n\\| case \\| reason \\|\\n\\|---\\|---\\|\\n([^]*?))\\n\\n`);
  const [, text = ''] = rows.exec(page) ?? ['', 'missing'];
  return text.split('\n').flatMap((line) => (line === '' ? [] : [line.replaceAll(/^\| | \|$/g, '').split(' | ')]));
}
