/** A separate kubelet folder for a test, with real mounts. Needs root, and is removed completely. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Mount, parseMountinfo } from '../../src/tmpfs/mountinfo.ts';
import { volumeMountPoint } from '../../src/tmpfs/volumes.ts';

export const podUid = '3f2504e0-4f89-11d3-9a0c-0305e82c3301';

export class KubeletFolder {
  readonly #base = realpathSync(mkdtempSync(join(tmpdir(), 'kubelet-')));
  readonly root = join(this.#base, 'kubelet');

  constructor() {
    mkdirSync(this.root);
  }

  /** Creates a folder next to kubelet's, and returns it. */
  siblingFolder(name: string): string {
    const folder = join(this.#base, name);
    mkdirSync(folder, { recursive: true });
    return folder;
  }

  /** Mounts a memory-backed emptyDir as kubelet does. */
  mountVolume(name: string, options = 'size=64m,noswap', uid = podUid): string {
    return mountTmpfs(volumeMountPoint(this.root, { podUid: uid, name }), options);
  }

  /** Mounts many volumes with one process. */
  mountVolumes(names: readonly string[], options: string): void {
    const folders = names.map((name) => volumeMountPoint(this.root, { podUid, name }));
    const script = 'for folder; do mkdir -p "$folder" && mount -t tmpfs -o "$0" tmpfs "$folder" || exit; done';
    execFileSync('sh', ['-c', script, options, ...folders]);
  }

  /** Mounts a tmpfs for a volume of another kind, for example kubernetes.io~secret. */
  mountOther(plugin: string, name: string, options = 'size=4m'): string {
    return mountTmpfs(join(this.root, 'pods', podUid, 'volumes', plugin, name), options);
  }

  remove(): void {
    // The latest mount comes first, because it may cover earlier ones. One unmount may remove peers, so the rest is
    // tried again.
    for (let left = mountsUnder(this.#base); left.length > 0; ) {
      spawnSync('umount', ['-l', ...left.map(({ mountPoint }) => mountPoint).reverse()]);
      const before = left.length;
      left = mountsUnder(this.#base);
      if (left.length === before) throw new Error(`cannot unmount ${left[0]!.mountPoint}`);
    }
    rmSync(this.#base, { recursive: true });
  }
}

export function mountTmpfs(folder: string, options: string): string {
  mkdirSync(folder, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', folder]);
  return folder;
}

export const bind = (from: string, to: string): void => void execFileSync('mount', ['--bind', from, to]);

/** Returns size and use in bytes, as `df` shows them. */
export function sizeAt(folder: string): { readonly size: number; readonly used: number } {
  const { blocks, bfree, bsize } = statfsSync(folder);
  return { size: blocks * bsize, used: (blocks - bfree) * bsize };
}

/** Returns the line of the top-most mount at a folder in the kernel's table without the size: every option and flag. */
export function optionsAt(folder: string): string {
  const line = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((candidate) => candidate.includes(` ${folder} `))
    .at(-1);
  if (line === undefined) throw new Error(`nothing is mounted at ${folder}`);
  return line.replace(/,size=\d+k/, '');
}

/** Whether this kernel's tmpfs supports an option (mpol and huge depend on its build). */
export function isKnownOption(option: string): boolean {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'option-')));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=1m,${option}`, 'tmpfs', folder], { stdio: 'ignore' });
    execFileSync('umount', [folder]);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function mountsUnder(folder: string): Mount[] {
  return parseMountinfo(readFileSync('/proc/self/mountinfo', 'utf8')).filter(({ mountPoint }) =>
    mountPoint.startsWith(`${folder}/`),
  );
}
