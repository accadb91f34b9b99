import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CriClient } from '../../support/cri/client.ts';
import { builtImage, image as imageName } from '../../support/e2e/installer-pod.ts';
import { resizesThrough } from '../../support/e2e/served.ts';

/**
 * Runs the shim in a container in the way that the Dockerfile describes: its entry point and environment, the node's
 * folders that it names, and all capabilities. The image is the one that a builder has made (npm run nightly -- --only
 * image). Without one, this node's own root is the base, and what the Dockerfile adds to the base is mounted.
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
  cpSync('container', join(folder, 'program/container'), { recursive: true });
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

const CRI = '/run/in-image/cri.sock';
const RESIZE = '/run/in-image/resize.sock';

/** Runs the image, as the Dockerfile says. Returns its process; `output` has what it has printed so far. */
function run(...flags: readonly string[]) {
  const image = imageOf(readFileSync('Dockerfile', 'utf8'));
  expect(image.mounts).toEqual(['/run', '/var/lib/kubelet', '/var/lib/cri-resize-shim', '/sys/fs/cgroup']);
  const [command = '', program = ''] = image.entry;
  expect(command).toBe('bash');
  const nodes = image.mounts.map((path) => ({ from: path, to: path, options: 'rbind:rslave:rw' }));
  // The root of the node, or that of the image.
  const [root, mounted, env] =
    folder === undefined
      ? [[imageName, 'shim', command], nodes, []]
      : [
          ['--rootfs', join(folder, 'root'), 'shim', '/usr/bin/bash'],
          [...nodes, { from: join(folder, 'program'), to: dirname(dirname(program)), options: 'rbind:ro' }],
          [`PATH=${process.env['PATH']}`],
        ];
  for (const { from } of mounted) mkdirSync(from, { recursive: true });
  const container = execa(
    'ctr',
    [
      ...['--namespace', 'image', 'run', '--rm', '--privileged', '--net-host'],
      ...[...image.env, ...env].flatMap((variable) => ['--env', variable]),
      ...mounted.flatMap(({ from, to, options }) => ['--mount', `type=bind,src=${from},dst=${to},options=${options}`]),
      ...[...root, program, '--listen', CRI, '--resize-listen', RESIZE, ...flags],
    ],
    { reject: false, all: true },
  );
  let output = '';
  container.all.on('data', (text: Buffer) => (output += String(text)));
  return { container, output: () => output };
}

async function says({ output }: ReturnType<typeof run>, text: string): Promise<void> {
  await expect.poll(output, { timeout: 60_000, interval: 100 }).toContain(text);
}

async function stopped({ container }: ReturnType<typeof run>): Promise<void> {
  await execa('ctr', ['--namespace', 'image', 'tasks', 'kill', '--signal', 'SIGTERM', 'shim'], { reject: false });
  expect(await container).toMatchObject({ exitCode: 0 });
  expect(existsSync(CRI)).toBe(false);
}

test('upgrade: the image runs with the folders of the node that the Dockerfile names, and resizes a pod with its volume', async () => {
  const image = run();
  try {
    await says(image, '"serving"');
    await resizesThrough(direct, { cri: CRI, resize: RESIZE, name: 'image' });
  } finally {
    await stopped(image);
  }
});

test('upgrade: clients of a container whose shim fails reach containerd within 10 s, and the shim takes over without a lost call', async () => {
  const config = '/run/in-image/config.yaml';
  mkdirSync(dirname(config), { recursive: true });
  writeFileSync(config, 'unknownKey: 1\n');
  const image = run('--config', config);
  const client = new CriClient(`unix://${CRI}`);
  try {
    await expect.poll(() => existsSync(CRI), { timeout: 30_000, interval: 20 }).toBe(true);
    const since = Date.now();
    expect(await client.version()).toMatchObject({ runtime_name: 'containerd' });
    expect(Date.now() - since).toBeLessThan(10_000);
    expect(image.output()).toContain('unknownKey');
    const isShim = async (one = client): Promise<boolean> =>
      'cri-resize-shim' in (await one.call<{ info: object }>('Status', { verbose: true })).info;
    expect(await isShim()).toBe(false);
    const clients = Array.from({ length: 4 }, () => new CriClient(`unix://${CRI}`));
    let isOver = false;
    // One call after the other on each connection, until the shim has answered each of them.
    const servedBy = async (one: CriClient): Promise<readonly boolean[]> => {
      const answers: boolean[] = [];
      try {
        while (!isOver || answers.at(-1) !== true) answers.push(await isShim(one));
      } finally {
        one.close();
      }
      return answers;
    };
    const calls = Promise.all(clients.map(servedBy));
    writeFileSync(config, '');
    await Promise.race([says(image, 'the bypass has ended'), calls]);
    isOver = true;
    for (const answers of await calls) expect([answers[0], answers.at(-1)]).toEqual([false, true]);
    expect(await isShim()).toBe(true);
  } finally {
    client.close();
    await stopped(image);
    rmSync(config);
  }
});
