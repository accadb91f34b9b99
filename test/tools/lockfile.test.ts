import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

interface Locked {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly link?: boolean;
}

const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
  readonly packages: Readonly<Record<string, Locked>>;
};
/** The first entry is this package. */
const locked = Object.entries(packages).filter(([path]) => path !== '');

test('the lockfile has a digest of every package that npm installs', () => {
  expect(locked.length).toBeGreaterThan(100);
  const without = locked.filter(([, { integrity = '' }]) => !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity));
  expect(without.map(([path]) => path)).toEqual([]);
});

test('every package of the lockfile comes from the registry of npm', () => {
  const elsewhere = locked.filter(
    ([, { resolved, link }]) =>
      link === true || (resolved !== undefined && !/^https:\/\/registry\.npmjs\.org\//.test(resolved)),
  );
  expect(elsewhere.map(([path]) => path)).toEqual([]);
});
