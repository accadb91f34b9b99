import { cpSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { dockerArchive, layerOf } from '../node/parts/images.ts';

/** The image that a builder has made from the Dockerfile (npm run nightly -- --only image); undefined without one. */
export const builtImage = process.env['IMAGE_ARCHIVE'];

/**
 * Imports the image of the Dockerfile. Without the image of a builder, approximates it without a builder and a
 * registry: the image's own folder comes from the Dockerfile's steps, and the base image is replaced by this machine's
 * programs of the same name with their libraries.
 */
export async function importImage(name: string): Promise<void> {
  if (builtImage !== undefined) {
    await execa('ctr', ['-n', 'k8s.io', 'images', 'import', builtImage]);
    return;
  }
  const folder = mkdtempSync(join(tmpdir(), 'image-'));
  try {
    const root = join(folder, 'root');
    for (const path of ['etc', 'proc', 'sys', 'dev', 'run', 'tmp', 'var/lib'])
      mkdirSync(join(root, path), { recursive: true });
    writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
    await putProgram(root, process.execPath, '/usr/local/bin/node');
    for (const program of ['/usr/bin/nsenter', '/usr/bin/test']) await putProgram(root, program, program);
    const program = join(root, 'usr/local/lib/cri-resize-shim');
    await execa(process.execPath, ['dist/tools/package.js', '--only', 'tree', '--to', program]);
    cpSync('dist/cri-resize-shim-installer.js', join(program, 'dist/cri-resize-shim-installer.js'));
    const archive = join(folder, 'image.tar');
    const env = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'MALLOC_ARENA_MAX=1'];
    writeFileSync(archive, dockerArchive([{ names: [name], layer: await layerOf(root), config: { env } }]));
    rmSync(root, { recursive: true });
    await execa('ctr', ['-n', 'k8s.io', 'images', 'import', archive]);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function putProgram(root: string, from: string, to: string): Promise<void> {
  const put = (source: string, target: string): void => {
    mkdirSync(dirname(join(root, target)), { recursive: true });
    cpSync(realpathSync(source), join(root, target));
  };
  put(from, to);
  const { stdout } = await execa('ldd', [realpathSync(from)]);
  for (const [, library = ''] of stdout.matchAll(/(\/\S+) \(0x/g))
    if (!existsSync(join(root, library))) put(library, library);
}
