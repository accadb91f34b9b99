import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { busyboxLayer, dockerArchive, layerOf } from './images.ts';
import { tar } from './tar.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'images-test-'));
});
afterEach(() => rm(folder, { recursive: true }));

async function extract(archive: Buffer): Promise<void> {
  await writeFile(join(folder, '.tar'), archive);
  await execa('tar', ['-xf', '.tar', '--no-same-owner'], { cwd: folder });
  await rm(join(folder, '.tar'));
}

test('tar(1) extracts a written archive with the original content', async () => {
  const entries = [
    { kind: 'folder', path: 'bin', mode: 0o755 },
    { kind: 'file', path: 'bin/odd', mode: 0o750, content: Buffer.alloc(513, 'x') },
    { kind: 'file', path: 'empty', mode: 0o644, content: Buffer.alloc(0) },
    { kind: 'link', path: 'link', target: 'bin/odd' },
  ] as const;
  await extract(tar(entries));
  expect(await layerOf(folder)).toEqual(entries);
});

test('a path that is too long is rejected, not truncated', () => {
  expect(() => tar([{ kind: 'folder', path: 'a'.repeat(100), mode: 0o755 }])).toThrow(RangeError);
});

test('images with a common layer store it once, and configuration and manifest reference each other', async () => {
  const layer = busyboxLayer(Buffer.from('program'), ['sh']);
  const archive = dockerArchive([
    { names: ['localhost/a:1'], layer, config: { entrypoint: ['/bin/sh'], user: '65534', labels: { key: 'value' } } },
    { names: ['localhost/b:1', 'localhost/c:1'], layer, config: { env: ['A=1'] } },
  ]);
  expect(dockerArchive([{ names: ['localhost/a:1'], layer, config: {} }])).toEqual(
    dockerArchive([{ names: ['localhost/a:1'], layer, config: {} }]),
  );
  await extract(archive);
  const read = async (name: string): Promise<unknown> => JSON.parse(await readFile(join(folder, name), 'utf8'));
  const manifest = (await read('manifest.json')) as { Config: string; RepoTags: string[]; Layers: string[] }[];
  expect(manifest.map((image) => image.RepoTags)).toEqual([['localhost/a:1'], ['localhost/b:1', 'localhost/c:1']]);
  expect(manifest[0]!.Layers).toEqual(manifest[1]!.Layers);
  const digest = manifest[0]!.Layers[0]!.replace('.tar', '');
  expect(await read(manifest[0]!.Config)).toMatchObject({
    config: { Entrypoint: ['/bin/sh'], User: '65534', Labels: { key: 'value' }, Env: ['PATH=/bin'] },
    rootfs: { type: 'layers', diff_ids: [`sha256:${digest}`] },
  });
});
