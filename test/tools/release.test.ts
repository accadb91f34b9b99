import type { KeyObject } from 'node:crypto';
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { packFolder } from '../../tools/release/archive.ts';
import { epochOf, problemsOf } from '../../tools/release/checks.ts';
import { signFile } from '../../tools/release/signature.ts';
import { differing, sumsOf } from '../../tools/release/sums.ts';

let root: string;

afterEach(() => rmSync(root, { recursive: true }));

describe('archives of a release', () => {
  beforeEach(() => (root = mkdtempSync(join(tmpdir(), 'archive-'))));

  /** Creates the same files in another order, at another time, and with other permissions for other users. */
  function folder(name: string, order: readonly string[], mode: number): string {
    const path = join(root, name, 'shim');
    mkdirSync(path, { recursive: true });
    for (const [index, file] of order.entries()) {
      writeFileSync(join(path, file), `content of ${file}`);
      utimesSync(join(path, file), index, index);
      chmodSync(join(path, file), file === 'run' ? mode | 0o111 : mode);
    }
    return path;
  }

  test('archives of equal files are identical, regardless of the order of files, the time and the umask', async () => {
    const [one, other] = [join(root, 'one.tgz'), join(root, 'other.tgz')];
    await packFolder(folder('first', ['a', 'b', 'run'], 0o644), one, '1700000000');
    await packFolder(folder('second', ['run', 'b', 'a'], 0o600), other, '1700000000');
    expect(readFileSync(one).equals(readFileSync(other))).toBe(true);
    const { stdout } = await execa('tar', ['--list', '--verbose', '--numeric-owner', '--utc', '--file', one]);
    const [, a, , run] = stdout.split('\n');
    expect(a).toMatch(/^-rw-r--r-- 0\/0 +12 2023-11-14 22:13 shim\/a$/);
    expect(run).toMatch(/^-rwxr-xr-x 0\/0 +14 2023-11-14 22:13 shim\/run$/);
  });

  test('an archive of other content has other bytes, and no temporary file is left next to it', async () => {
    const [one, other] = [join(root, 'one.tgz'), join(root, 'other.tgz')];
    const path = folder('first', ['a'], 0o644);
    await packFolder(path, one, '1700000000');
    writeFileSync(join(path, 'a'), 'Content of a');
    await packFolder(path, other, '1700000000');
    expect(readFileSync(one).equals(readFileSync(other))).toBe(false);
    await expect(execa('ls', [root])).resolves.toMatchObject({ stdout: 'first\none.tgz\nother.tgz' });
  });
});

describe('checks of a release', () => {
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
});

describe('signatures of a release', () => {
  let file: string;

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'signature-'));
    file = join(root, 'SHA256SUMS');
    writeFileSync(file, 'abc  file\n');
  });

  const put = (text: string): string => {
    writeFileSync(join(root, 'key.pem'), text);
    return join(root, 'key.pem');
  };
  /** Returns the private key as PEM, as openssl writes it. */
  const pem = ({ privateKey }: { readonly privateKey: KeyObject }): string =>
    String(privateKey.export({ type: 'pkcs8', format: 'pem' }));

  /** Verifies with openssl, as docs/release.md says. */
  const verified = (...flags: readonly string[]): Promise<boolean> =>
    execa('openssl', [...flags], { cwd: root, reject: false }).then(({ exitCode }) => exitCode === 0);

  test('openssl verifies the signature of an Ed25519 key, and not of another content', async () => {
    signFile(file, put(pem(generateKeyPairSync('ed25519'))));
    const command = ['pkeyutl', '-verify', '-rawin', '-pubin', '-inkey', 'SHA256SUMS.pub', '-in', 'SHA256SUMS'];
    expect(await verified(...command, '-sigfile', 'SHA256SUMS.sig')).toBe(true);
    writeFileSync(file, 'abd  file\n');
    expect(await verified(...command, '-sigfile', 'SHA256SUMS.sig')).toBe(false);
  });

  test.each([
    ['ec', pem(generateKeyPairSync('ec', { namedCurve: 'P-256' }))],
    ['rsa', pem(generateKeyPairSync('rsa', { modulusLength: 2048 }))],
  ])('openssl verifies the signature of a key of type %s', async (_, key) => {
    signFile(file, put(key));
    expect(
      await verified('dgst', '-sha256', '-verify', 'SHA256SUMS.pub', '-signature', 'SHA256SUMS.sig', 'SHA256SUMS'),
    ).toBe(true);
  });

  test('rejects a file that is not a key, and a key that cannot sign, with the name of the file', () => {
    expect(() => signFile(file, put('no key'))).toThrow(/key\.pem cannot be used: expected a private key in PEM/);
    expect(() => signFile(file, put(pem(generateKeyPairSync('x25519'))))).toThrow(
      /key\.pem is of type x25519: expected ed25519, ec or rsa/,
    );
  });
});

describe('sums of a release', () => {
  beforeEach(() => (root = mkdtempSync(join(tmpdir(), 'sums-'))));

  test('sha256sum accepts the checksums, which are sorted by name', async () => {
    const files = ['b', 'a'].map((name) => join(root, name));
    for (const file of files) writeFileSync(file, file);
    const sums = await sumsOf(files);
    writeFileSync(join(root, 'SHA256SUMS'), sums);
    const { stdout } = await execa('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: root });
    expect(stdout).toBe('a: OK\nb: OK');
  });

  test('reports files that differ between two builds, and files that only one build has', () => {
    const line = (digit: string, name: string): string => `${digit.repeat(64)}  ${name}\n`;
    const one = line('1', 'same') + line('2', 'other') + line('3', 'only-first');
    const two = line('1', 'same') + line('9', 'other') + line('3', 'only-second');
    expect(differing(one, one)).toEqual([]);
    expect(differing(one, two)).toEqual(['other', 'only-first', 'only-second']);
  });
});
