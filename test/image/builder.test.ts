import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { builderAtHand } from './builder.ts';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'builder-'))));
afterEach(() => rmSync(folder, { recursive: true }));

/** A program that ends with this code. */
const put = (program: string, code: number): void =>
  writeFileSync(join(folder, program), `#!/bin/sh\nexit ${code}\n`, { mode: 0o755 });

test('the first builder that works is taken, with its own words for an archive as docker save writes it', async () => {
  put('docker', 1);
  put('buildah', 0);
  const buildah = await builderAtHand(`/nowhere:${folder}`);
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
  expect((await builderAtHand(folder)).save('shim:1', '/a.tar')).toContain('docker-archive');
});

test('without one it says what was looked for, and where', async () => {
  put('docker', 1);
  await expect(builderAtHand(folder)).rejects.toThrow(
    `no builder of images is at hand: "version" of each of docker, podman, buildah fails, by PATH=${folder}`,
  );
});
