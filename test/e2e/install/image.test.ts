import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CriClient } from '../../support/cri/client.ts';
import { builtImage } from '../../support/e2e/installer-image.ts';
import { image as imageName } from '../../support/e2e/installer-pod.ts';
import { resizesThrough } from '../../support/e2e/resizing.ts';

/**
 * Runs the shim in a container in the way that the Dockerfile describes: its entry point and environment, the node's
 * folders that it names, and all capabilities. The image is the one that a builder has made (npm run image). Without
 * one, this node's own root is the base, and what the Dockerfile adds to the base is mounted.
 */

const direct = new CriClient('unix:///run/containerd/containerd.sock');
let folder: string | undefined;

beforeAll(async () => {
  if (builtImage !== undefined) {
    await execa('ctr', ['--namespace', 'image', 'images', 'import', builtImage]);
    return;
  }
  folder = mkdtempSync('/var/lib/image-');
  await execa(process.execPath, ['dist/tools/package.js', '--only', 'tree', '--to', join(folder, 'program')]);
  mkdirSync(join(folder, 'root'));
  // Binds the root alone, without the mounts below it.
  await execa('mount', ['--bind', '/', join(folder, 'root')]);
});
afterAll(async () => {
  direct.close();
  if (folder === undefined) return;
  await execa('umount', [join(folder, 'root')]);
  rmSync(folder, { recursive: true });
  // Created as a mount point, because the bound root is the node's own.
  rmSync('/usr/local/lib/cri-resize-shim', { recursive: true, force: true });
});

interface Image {
  readonly entry: readonly string[];
  readonly env: readonly string[];
  /** The node's folders to mount. */
  readonly mounts: readonly string[];
}

function imageOf(dockerfile: string): Image {
  const [, last = ''] = dockerfile.split(/^FROM /m).slice(1);
  const [, entry = '[]'] = /^ENTRYPOINT (\[.*\])$/m.exec(last) ?? [];
  const [, env = ''] = /^ENV (.*)$/m.exec(last) ?? [];
  const comment = dockerfile.split('\n').filter((line) => line.startsWith('# '));
  const [, named = ''] = /with the node's (.*?) mounted/.exec(comment.map((line) => line.slice(2)).join(' ')) ?? [];
  return { entry: JSON.parse(entry) as string[], env: env.split(' '), mounts: named.match(/\/[\w/-]+/g) ?? [] };
}

test('the image runs with the node’s folders that the Dockerfile names, and resizes a pod with its volume', async () => {
  const image = imageOf(readFileSync('Dockerfile', 'utf8'));
  expect(image.mounts).toEqual(['/run', '/var/lib/kubelet', '/var/lib/cri-resize-shim', '/sys/fs/cgroup']);
  const [command = '', program = ''] = image.entry;
  const nodes = image.mounts.map((path) => ({ from: path, to: path, options: 'rbind:rslave:rw' }));
  // The root of the node, or that of the image.
  const [root, mounted] =
    folder === undefined
      ? [[imageName, 'shim', command], nodes]
      : [
          ['--rootfs', join(folder, 'root'), 'shim', resolve(process.execPath)],
          [...nodes, { from: join(folder, 'program'), to: dirname(dirname(program)), options: 'rbind:ro' }],
        ];
  for (const { from } of mounted) mkdirSync(from, { recursive: true });
  const [cri, resize] = ['/run/in-image/cri.sock', '/run/in-image/resize.sock'];
  expect(command).toBe('node');
  const container = execa(
    'ctr',
    [
      ...['--namespace', 'image', 'run', '--rm', '--privileged', '--net-host'],
      ...image.env.flatMap((variable) => ['--env', variable]),
      ...mounted.flatMap(({ from, to, options }) => ['--mount', `type=bind,src=${from},dst=${to},options=${options}`]),
      ...[...root, program, '--listen', cri, '--resize-listen', resize],
    ],
    { reject: false, all: true },
  );
  try {
    await new Promise<void>((done, reject) => {
      container.all.on('data', (text: Buffer) => String(text).includes('"serving"') && done());
      void container.then(({ all }) => reject(new Error(`the shim has exited: ${all}`)));
    });
    await resizesThrough(direct, { cri, resize, name: 'image' });
    await execa('ctr', ['--namespace', 'image', 'tasks', 'kill', '--signal', 'SIGTERM', 'shim']);
    expect(await container).toMatchObject({ exitCode: 0 });
    expect(existsSync(cri)).toBe(false);
  } finally {
    container.kill('SIGTERM');
    await container;
  }
});
