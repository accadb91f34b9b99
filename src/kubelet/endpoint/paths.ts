import { readlink, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { errnoOf } from '../../core/index.ts';

/** Where to read the files of a process: it may have another root, and a relative path starts in its own folder. */
export interface ProcessView {
  /** Prefix of absolute paths: `/proc/42/root`, or empty for our own root. */
  readonly root: string;
  /** Where relative paths start: `/proc/42/cwd`. */
  readonly cwd: string;
}

/** Exists in the state folder once kubelet has used the shim. An uninstallation removes it. */
export const USED_FILE = 'kubelet-uses-the-shim';

/** Maximum number of symbolic links in a path, as in the kernel (path_resolution(7)). */
const MOST_LINKS = 40;

/**
 * Returns where to read a file of another process, as that process finds it: a symbolic link with an absolute target
 * starts at the root of that process, whereas the kernel would start at our root. A part that does not exist stays as
 * it is. Rejects if a folder cannot be read, and with ELOOP.
 * @param isFollowed whether a link at the end is followed: not for lstat(2)
 */
export async function seenBy({ root, cwd }: ProcessView, file: string, isFollowed = true): Promise<string> {
  const isAbsolute = file.startsWith('/');
  if (root === '') return isAbsolute ? file : `${cwd}/${file}`;
  let place = isAbsolute ? root : cwd;
  const left = partsOf(file);
  for (let links = 0; left.length > 0; ) {
    const name = left.shift() ?? '';
    if (name === '..') {
      place = parentOf(place, root);
      continue;
    }
    const to = left.length > 0 || isFollowed ? await linkOf(`${place}/${name}`) : undefined;
    if (to === undefined) {
      place = `${place}/${name}`;
      continue;
    }
    links += 1;
    if (links > MOST_LINKS)
      throw Object.assign(new Error(`ELOOP: too many symbolic links, '${file}'`), { code: 'ELOOP' });
    if (to.startsWith('/')) place = root;
    left.unshift(...partsOf(to));
  }
  return place;
}

const partsOf = (path: string): string[] => path.split('/').filter((name) => name !== '' && name !== '.');

/** Returns the parent of a folder. The root is its own parent. Outside of the root, the kernel resolves `..`. */
function parentOf(place: string, root: string): string {
  if (place === root) return root;
  return place.startsWith(`${root}/`) ? place.slice(0, place.lastIndexOf('/')) : `${place}/..`;
}

/** Returns the target of a symbolic link; undefined for anything else, and if it does not exist. */
async function linkOf(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (['EINVAL', 'ENOENT', 'ENOTDIR'].includes(errnoOf(error) ?? '')) return undefined;
    throw error;
  }
}

/** The path in a socket address, with or without `unix://`. */
export const socketPathOf = (endpoint: string): string => endpoint.replace(/^unix:(\/\/)?/, '');

/**
 * Whether two endpoints, with or without `unix://`, name the same socket. Folders may be symbolic links: /var/run is
 * one. A path that does not exist or is hidden is compared by name.
 */
export async function isSameSocket(one: string, other: string): Promise<boolean> {
  const [path, otherPath] = [socketPathOf(one), socketPathOf(other)];
  return path === otherPath || (await realPathOf(path)) === (await realPathOf(otherPath));
}

async function realPathOf(path: string): Promise<string> {
  const folder = dirname(path);
  if (!path.startsWith('/') || folder === path) return path;
  return realpath(path).catch(async () => join(await realPathOf(folder), basename(path)));
}
