import { access, constants, lstat, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';

/**
 * Rejects if a file or a folder cannot be replaced or removed: its file system is read-only, it or its folder is
 * immutable (chattr +i), or it is a mount of its own, over which nothing can be renamed, or neither a regular file, a
 * folder nor a link. It need not exist. Changes nothing.
 */
export async function assertReplaceable(path: string): Promise<void> {
  // access(2) reports a read-only file system and the immutable attribute to root, too.
  for (let folder = dirname(path); !(await isWritable(folder)) && folder !== '/'; ) folder = dirname(folder);
  await isWritable(path);
  await assertPlain(path);
  const mounts = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '');
  if (mounts.split('\n').some((line) => mountPointIn(line) === path))
    throw new Error(`${path} is a mount of its own: it can be neither replaced nor removed`);
}

/** A unit that is masked leads to /dev/null, and a file that is renamed over that would replace the device of the whole machine. */
async function assertPlain(path: string): Promise<void> {
  const found = await lstat(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  });
  if (found === undefined || found.isFile() || found.isDirectory() || found.isSymbolicLink()) return;
  const remedy = path === '/dev/null' ? ': unmask the unit (systemctl unmask)' : '';
  throw new Error(`${path} is not a regular file, so it is not replaced${remedy}`);
}

const reasons: Readonly<Record<string, string>> = {
  EROFS: 'its file system is read-only',
  EPERM: 'it is immutable (lsattr)',
  EACCES: 'permission denied',
};

/** Returns false if the path does not exist. Rejects if it cannot be written. */
async function isWritable(path: string): Promise<boolean> {
  try {
    await access(path, constants.W_OK);
    return true;
  } catch (error) {
    const code = errnoOf(error) ?? '';
    if (code === 'ENOENT') return false;
    const reason = reasons[code];
    throw reason === undefined ? error : new Error(`${path} cannot be written: ${reason}`, { cause: error });
  }
}

/** The fifth field of a line of mountinfo, with its octal escapes (proc_pid_mountinfo(5)). */
const mountPointIn = (line: string): string | undefined =>
  line.split(' ')[4]?.replaceAll(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(parseInt(digits, 8)));
