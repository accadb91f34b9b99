import { describe, expect, test } from 'vitest';
import {
  chooseSite,
  firstDependency,
  listOf,
  parseIndexTargets,
  parsePrintedUri,
  upstreamVersion,
  versionOfFile,
} from './debian.ts';

describe('the site of complete Debian suites', () => {
  const security = {
    site: 'http://mirror.test/debian-security',
    release: 'bookworm-security',
    label: 'Debian-Security',
  };
  const updates = { site: 'http://mirror.test/debian', release: 'bookworm-updates', label: 'Debian' };
  const main = { site: 'http://mirror.test/debian', release: 'bookworm', label: 'Debian' };
  const vendor = { site: 'http://vendor.test/debian', release: 'stable', label: 'Vendor' };

  test('the chosen site is that of Debian itself, not of security updates or a vendor', () => {
    expect(chooseSite([vendor, security, updates, main])).toBe('http://mirror.test/debian');
    expect(chooseSite([vendor, security])).toBeUndefined();
  });

  test('the site of Debian is found by its path if apt has fetched no release file', () => {
    const unread = [security, main].map((target) => ({ ...target, label: '' }));
    expect(chooseSite(unread)).toBe('http://mirror.test/debian');
  });

  test("sites are read from apt's output, where an unknown field prints its own name", () => {
    const output = 'http://mirror.test/debian|bookworm|Debian\nhttp://other.test/apt|stable|$(LABEL)\n\n';
    expect(parseIndexTargets(output)).toEqual([main, { site: 'http://other.test/apt', release: 'stable', label: '' }]);
  });
});

test('a printed URI contains file and size', () => {
  const line =
    "'http://mirror.test/debian/pool/main/c/crun/crun_1.28-1_amd64.deb' crun_1.28-1_amd64.deb 398880 SHA256:00";
  expect(parsePrintedUri(line)).toEqual({ file: 'crun_1.28-1_amd64.deb', bytes: 398880 });
  expect(parsePrintedUri('Reading package lists...')).toBeUndefined();
});

test('an epoch is escaped in file names and is not part of the version that a program reports', () => {
  expect(versionOfFile('busybox-static_1%3a1.38.0-3+b1_amd64.deb')).toBe('1:1.38.0-3+b1');
  expect(upstreamVersion('1:1.38.0-3+b1')).toBe('1.38.0');
  expect(upstreamVersion('2.1.9+ds1-5')).toBe('2.1.9');
  expect(upstreamVersion('1.7.24~ds1-6+deb13u1')).toBe('1.7.24');
  expect(upstreamVersion('7.2um1')).toBe('7.2');
});

test('the first dependency of a package has no version and no alternatives', () => {
  expect(firstDependency('linux-image-6.12.117+deb13-cloud-amd64 (= 6.12.117-1)\n')).toBe(
    'linux-image-6.12.117+deb13-cloud-amd64',
  );
  expect(firstDependency('a | b, c')).toBe('a');
  expect(firstDependency('')).toBeUndefined();
});

test('a list of many packages shows the first ones and the number of the others', () => {
  const named = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ name: `p${index}`, suite: 'trixie' as const }));
  expect(listOf(named(2))).toBe('p0 (trixie), p1 (trixie)');
  expect(listOf(named(40))).toBe('p0 (trixie), p1 (trixie), p2 (trixie) and 37 more');
});
