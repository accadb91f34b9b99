import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, open, readFile, rename, rm, rmdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';
import type { Change } from './change.ts';

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

/** Replaces a file atomically: readers see either the old or the new content. */
export async function replaceFile(path: string, { content, mode, uid, gid }: SavedFile): Promise<void> {
  const fresh = `${path}.${randomBytes(4).toString('hex')}`;
  try {
    const file = await open(fresh, 'wx', 0o600);
    try {
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
    await chown(fresh, uid, gid);
    await chmod(fresh, mode);
    await rename(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
}

/** Writes a file. An existing file keeps its mode and owner; a new file belongs to us. @param mode of a new file */
export function writing(path: string, text: string | Buffer, { mode = 0o644 }: { mode?: number } = {}): Change {
  let before: SavedFile | undefined;
  let made: string | undefined;
  let isBegun = false;
  return {
    description: `write ${path}`,
    async do() {
      before = await readSaved(path);
      isBegun = true;
      made = await mkdir(dirname(path), { recursive: true });
      await replaceFile(path, { mode, ...ourselves(), ...before, content: Buffer.from(text) });
    },
    async undo() {
      if (!isBegun) return;
      if (before !== undefined) await replaceFile(path, before);
      else await rm(path, { force: true });
      if (made !== undefined) await removeEmpty(dirname(path), made);
    },
  };
}

const ourselves = () => ({ uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 });

/** Removes a file if it exists. */
export function removing(path: string): Change {
  let before: SavedFile | undefined;
  return {
    description: `remove ${path}`,
    async do() {
      before = await readSaved(path);
      await rm(path, { force: true });
    },
    async undo() {
      if (before !== undefined) await replaceFile(path, before);
    },
  };
}

/** Removes empty folders, from the innermost to the outermost. */
async function removeEmpty(innermost: string, outermost: string): Promise<void> {
  for (let folder = innermost; folder.startsWith(outermost); folder = dirname(folder)) {
    try {
      await rmdir(folder);
    } catch (error) {
      // Somebody else has added a file.
      if (errnoOf(error) === 'ENOTEMPTY') return;
      throw error;
    }
  }
}
