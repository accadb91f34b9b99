import { randomBytes } from 'node:crypto';
import {
  access,
  chmod,
  chown,
  constants,
  lstat,
  mkdir,
  open,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
} from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { errnoOf, syncFolder } from '../../core/index.ts';
import { type Change, ChangedMeanwhile } from './change.ts';

/** Content, mode and owner of a file. */
export interface SavedFile {
  readonly content: Buffer;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
}

/** Reads a file with its mode and owner; returns undefined if it does not exist. */
export async function readSaved(path: string): Promise<SavedFile | undefined> {
  try {
    const { mode, uid, gid } = await stat(path);
    return { content: await readFile(path), mode: mode & 0o7777, uid, gid };
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** The kernel's own limit (path_resolution(7)). */
const MOST_LINKS = 40;

/** Returns the file to change behind a path, so that symbolic links stay. The file need not exist. */
async function behindLinks(path: string): Promise<string> {
  let place = path;
  for (let links = 0; links <= MOST_LINKS; links += 1) {
    const to = await linkOf(place);
    if (to === undefined) return place;
    place = resolve(await realpath(dirname(place)), to);
  }
  throw Object.assign(new Error(`ELOOP: too many symbolic links, '${path}'`), { code: 'ELOOP' });
}

/** Returns the target of a symbolic link; undefined if the path is not one, or does not exist. */
async function linkOf(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (['EINVAL', 'ENOENT'].includes(errnoOf(error) ?? '')) return undefined;
    throw error;
  }
}

/**
 * Copies access lists and other extended attributes, if the file system has them: an SELinux label for example, without
 * which a confined service could not read the file. Node has no call for them.
 */
async function copyAttributes(from: string, to: string): Promise<void> {
  await execa('cp', ['--attributes-only', '--preserve=mode,ownership,xattr', '--', from, to], { reject: false });
}

/**
 * Replaces a file atomically: readers see either the old or the new content, also after a power cut. It keeps its
 * extended attributes. The caller syncs the folder.
 */
async function replaceFile(path: string, { content, mode, uid, gid }: SavedFile): Promise<void> {
  const fresh = join(dirname(path), `${basename(path)}.${randomBytes(4).toString('hex')}`);
  try {
    const file = await open(fresh, 'wx', 0o600);
    try {
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
    await copyAttributes(path, fresh);
    await chown(fresh, uid, gid);
    await chmod(fresh, mode);
    await rename(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
}

/** Mode and owner of a new file. */
export type Rights = Pick<SavedFile, 'mode' | 'uid' | 'gid'>;

export interface WriteOptions extends Partial<Rights> {
  /** The content that the new text is based on. If the file differs, somebody has changed it: no write. */
  readonly madeFrom?: string;
  /** Returns the content for a rollback if the file was changed since. By default the old content is restored. */
  readonly rolledBack?: (now: string) => string;
}

/**
 * Writes a file. An existing file keeps its mode, owner and extended attributes, and a symbolic link stays a link. A
 * new file belongs to our user, unless the options set an owner.
 */
export function writing(path: string, text: string | Buffer, options: WriteOptions = {}): Change {
  const { madeFrom, rolledBack, ...rights } = options;
  let before: SavedFile | undefined;
  let file = path;
  let made: string | undefined;
  let isReplaced = false;
  return {
    description: `write ${path}`,
    probe: async () => assertReplaceable(await behindLinks(path)),
    async do() {
      file = await behindLinks(path);
      await assertReplaceable(file);
      before = await readSaved(file);
      if (madeFrom !== undefined && before?.content.equals(Buffer.from(madeFrom)) !== true)
        throw new ChangedMeanwhile(`${path} has changed since it was read: try again`);
      made = await mkdir(dirname(file), { recursive: true });
      await replaceFile(file, { mode: 0o644, ...ourselves(), ...rights, ...before, content: Buffer.from(text) });
      isReplaced = true;
      await syncFolder(dirname(file));
    },
    async undo() {
      if (isReplaced && before !== undefined) {
        const now = (await readSaved(file))?.content;
        const isChanged = now?.equals(Buffer.from(text)) === false;
        const content =
          isChanged && rolledBack !== undefined ? Buffer.from(rolledBack(now.toString('utf8'))) : undefined;
        await replaceFile(file, { ...before, content: content ?? before.content });
      } else if (isReplaced) await rm(file, { force: true });
      if (isReplaced) await syncFolder(dirname(file));
      if (made !== undefined) await removeEmpty(dirname(file), made);
    },
  };
}

const ourselves = (): Omit<Rights, 'mode'> => ({ uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 });

/** Writes the removal of a file to the disk. One that did not exist may have no folder. */
async function syncRemoval(path: string): Promise<void> {
  await syncFolder(dirname(path)).catch((error: unknown) => {
    if (errnoOf(error) !== 'ENOENT') throw error;
  });
}

/** Removes a file or a symbolic link if it exists. */
export function removing(path: string): Change {
  let before: SavedFile | undefined;
  let link: string | undefined;
  let isRemoved = false;
  return {
    description: `remove ${path}`,
    probe: () => assertReplaceable(path),
    async do() {
      link = await linkOf(path);
      before = link === undefined ? await readSaved(path) : undefined;
      await rm(path, { force: true });
      isRemoved = true;
      await syncRemoval(path);
    },
    async undo() {
      if (!isRemoved) return;
      if (link !== undefined) await symlink(link, path);
      if (before !== undefined) await replaceFile(path, before);
      await syncRemoval(path);
    },
  };
}

/** Removes empty folders, from the innermost to the outermost. */
async function removeEmpty(innermost: string, outermost: string): Promise<void> {
  for (let folder = innermost; folder.startsWith(outermost); folder = dirname(folder)) {
    try {
      await rmdir(folder);
    } catch (error) {
      // Another process has added a file.
      if (errnoOf(error) === 'ENOTEMPTY') return;
      throw error;
    }
  }
}

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

/** A masked unit leads to /dev/null. A rename over that would replace the device of the whole machine. */
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
