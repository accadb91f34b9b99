/**
 * Files that are there after a crash of the process or of the machine: each is replaced whole, and a change has reached
 * the disk when the promise is fulfilled. All of it runs in the thread pool: an fsync may take seconds.
 */
import { constants, mkdir, open, rename, rm, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { fstatSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { crashPoint } from '../../core/crash-points/index.ts';
import { errnoOf } from '../../core/errors/index.ts';
import { temporaryFile } from './file-names.ts';

const { O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = constants;
/** For us alone: records name pods, and decide what is undone. */
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;

/**
 * The folder that the records are in. It stays open: to open and close it took a third of the time of a change. Whether it
 * is still the one that its path names, and still ours, is looked at each time; the kernel has all of that in memory.
 */
export class StateFolder {
  readonly #path: string;
  #open: FileHandle | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * The folder, which is made when it is missing. Rejects when it is no folder, or when somebody else may write to it:
   * whoever can exchange a record decides over the limits of a pod.
   */
  async opened(): Promise<FileHandle> {
    const known = this.#open;
    if (known !== undefined && isAt(known, this.#path)) {
      assertOurs(known);
      return known;
    }
    const folder = await openOrMake(this.#path);
    try {
      assertOurs(folder);
    } catch (error) {
      await folder.close();
      throw error;
    }
    // Somebody may have opened it meanwhile, and may use it still: that one is closed once nothing is under way in it.
    const before = this.#open;
    this.#open = folder;
    await before?.close();
    return folder;
  }

  async close(): Promise<void> {
    const folder = this.#open;
    this.#open = undefined;
    await folder?.close();
  }
}

function isAt({ fd }: FileHandle, path: string): boolean {
  const open = fstatSync(fd);
  const named = statSync(path, { throwIfNoEntry: false });
  return named !== undefined && named.ino === open.ino && named.dev === open.dev;
}

function assertOurs({ fd }: FileHandle): void {
  const { uid, mode } = fstatSync(fd);
  if (uid !== process.geteuid?.()) throw new Error(`the state folder belongs to user ${uid}, not to ours`);
  if ((mode & 0o022) !== 0)
    throw new Error(`others may write to the state folder (mode ${(mode & 0o777).toString(8)})`);
}

async function openOrMake(path: string): Promise<FileHandle> {
  try {
    return await openFolder(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  try {
    await mkdir(path, { mode: FOLDER_MODE });
  } catch (error) {
    // Somebody was faster: the folder's rights are looked at all the same.
    if (errnoOf(error) !== 'EEXIST') throw error;
  }
  await syncFolder(dirname(path));
  return openFolder(path);
}

const openFolder = (path: string): Promise<FileHandle> => open(path, O_RDONLY | O_DIRECTORY);

async function syncFolder(path: string): Promise<void> {
  const folder = await openFolder(path);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/**
 * Puts a file in its place whole: at every instant there is the old content or the new. When it rejects the old content
 * is there, or after a failure of the last step, the folder's fsync, the new.
 */
export async function replaceFile(path: string, folder: FileHandle, name: string, content: Buffer): Promise<void> {
  crashPoint('journal-write-before');
  const temporary = join(path, temporaryFile(name));
  try {
    await writeThrough(temporary, content);
    crashPoint('journal-write-synced');
    await rename(temporary, join(path, name));
  } catch (error) {
    // On a full disk half a record takes the room that the next one needs. The first error is the one that tells.
    await rm(temporary, { force: true }).catch(() => undefined);
    throw error;
  }
  crashPoint('journal-write-renamed');
  await folder.sync();
  crashPoint('journal-write-after');
}

/** Writes a file up to the disk; one that is left over from a crash is written over. */
export async function writeThrough(file: string, content: Buffer): Promise<void> {
  const handle = await open(file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, FILE_MODE);
  try {
    // Where there is room for a part of it only that is taken first, and the next write says why (ENOSPC).
    for (let at = 0; at < content.length; ) at += (await handle.write(content, at)).bytesWritten;
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Removes a file, which may be gone already. `lasting`: up to the disk, also when it has gone already, since an earlier try may
 * have failed there. Else it is back after a crash of the machine, perhaps, but not after one of the process.
 */
export async function removeFile(path: string, folder: FileHandle, name: string, lasting: boolean): Promise<void> {
  crashPoint('journal-remove-before');
  try {
    await unlink(join(path, name));
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
  crashPoint('journal-remove-unlinked');
  if (lasting) await folder.sync();
  crashPoint('journal-remove-after');
}

/** Reads a plain file of at most `most` bytes, through no symbolic link. Rejects otherwise. */
export async function readBounded(file: string, most: number): Promise<Buffer> {
  // A pipe in its place would be waited for without end.
  const handle = await open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw new Error('is no plain file');
    if (stats.size > most) throw new Error(`has ${stats.size} bytes; it may have ${most}`);
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}
