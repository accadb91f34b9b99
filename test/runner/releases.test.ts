import { globSync } from 'node:fs';
import { matchesGlob } from 'node:path';
import { expect, test } from 'vitest';
import { excludedAsIndependent, excludedOf, excludedOfMain, inOrder, usualReleases } from './releases.ts';

const files = globSync('test/e2e/**/*.test.ts');
const running = (excluded: readonly string[]): string[] =>
  files.filter((file) => !excluded.some((pattern) => matchesGlob(file, pattern)));

test('containerd of Debian replaces the long-term support release if no Go toolchain exists', () => {
  expect(usualReleases(true)).toEqual(['1.7', '2.3']);
  expect(usualReleases(false)).toEqual(['1.7', '2.1']);
});

test('every exclude pattern of a release matches a file', () => {
  for (const release of ['1.6', '1.7', '2.3'] as const)
    for (const pattern of excludedAsIndependent(release))
      expect(
        files.filter((file) => matchesGlob(file, pattern)),
        pattern,
      ).not.toEqual([]);
});

test('a release runs all possible files, only the files that depend on it, or all without the matrix', () => {
  expect(running(excludedOf('2.3'))).toEqual(expect.arrayContaining(running(excludedOfMain('2.3'))));
  expect(running(excludedAsIndependent('1.7'))).toContain('test/e2e/resize/resize.test.ts');
  expect(running(excludedAsIndependent('1.7'))).not.toContain('test/e2e/resize/container-events.test.ts');
  expect(running(excludedOfMain('2.3'))).toContain('test/e2e/resize/container-events.test.ts');
});

test('the suite e2e runs each file that needs no systemd on at least one release, except the matrix', () => {
  const run = [...running(excludedOfMain('2.3')), ...running(excludedAsIndependent('1.7'))];
  const possible = new Set([...running(excludedOf('1.7')), ...running(excludedOf('2.3'))]);
  expect([...possible].filter((file) => !run.includes(file))).toEqual(['test/e2e/resize/matrix.test.ts']);
});

test('releases are tested from old to new', () => {
  expect(inOrder(['2.3', '1.7'])).toEqual(['1.7', '2.3']);
});
