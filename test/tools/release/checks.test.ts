import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { epochOf, problemsOf } from '../../../tools/release/checks.ts';

let root: string;
const git = (...args: readonly string[]) =>
  execa('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], { cwd: root });
const put = (file: string, text: string): void => {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
};
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'release-'));
  put('deploy/helm/cri-resize-shim/Chart.yaml', 'version: 1.2.3\nappVersion: 1.2.3\n');
  put('deploy/kustomize/daemonset.yaml', '          image: cri-resize-shim:1.2.3\n');
  put('package-lock.json', '{\n  "version": "1.2.3",\n}\n');
  put('CHANGELOG.md', '# Changelog\n\n## [1.2.3] - 2026-02-03\n\n## [1.2.2] - 2026-01-01\n');
  await git('init');
  await git('add', '.');
  await execa('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', 'commit', '-m', 'x'], {
    cwd: root,
    env: { GIT_COMMITTER_DATE: '2026-02-03T04:05:06Z' },
  });
});
afterEach(() => rmSync(root, { recursive: true }));

test('a checkout whose files agree on the version can be released, with the time of its commit', async () => {
  expect(await problemsOf(root, '1.2.3')).toEqual([]);
  expect(await epochOf(root)).toBe(String(Date.parse('2026-02-03T04:05:06Z') / 1000));
  await git('tag', 'v1.2.3');
  expect(await problemsOf(root, '1.2.3')).toEqual([]);
});

test('reports each place that has another version', async () => {
  expect(await problemsOf(root, '1.2.4')).toEqual([
    'deploy/helm/cri-resize-shim/Chart.yaml: found version 1.2.3, expected 1.2.4 as in package.json',
    'deploy/helm/cri-resize-shim/Chart.yaml: found version 1.2.3, expected 1.2.4 as in package.json',
    'deploy/kustomize/daemonset.yaml: found version 1.2.3, expected 1.2.4 as in package.json',
    'package-lock.json: found version 1.2.3, expected 1.2.4 as in package.json',
    'CHANGELOG.md: no section for 1.2.4',
  ]);
});

test('reports a changelog without a date, and files that differ from the commit', async () => {
  put('CHANGELOG.md', '## [1.2.3] - Unreleased\n');
  expect(await problemsOf(root, '1.2.3')).toEqual([
    'CHANGELOG.md: "## [1.2.3] - Unreleased" has no date: expected "## [1.2.3] - YYYY-MM-DD"',
    '1 files differ from the commit, such as "M CHANGELOG.md"',
  ]);
});

test('reports a tag on another commit', async () => {
  await git('tag', 'v1.2.3');
  put('new', '');
  await git('add', '.');
  await git('commit', '-m', 'y');
  expect(await problemsOf(root, '1.2.3')).toEqual([
    expect.stringMatching(/^the tag v1\.2\.3 is on another commit: [0-9a-f]{40}$/),
  ]);
});
