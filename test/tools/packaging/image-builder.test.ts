import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findBuilder } from '../../../tools/packaging/image-builder.ts';

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
