/**
 * Files that survive a crash of the process and, if they are synced, of the machine: each is replaced atomically, and a
 * synced change has reached the disk when its promise resolves. All I/O runs in the thread pool, because a disk may
 * take seconds.
 */
import type { Stats } from 'node:fs';
import { constants, type FileHandle, mkdir, open, rename, rm, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { crashPoint, errnoOf, syncFolder } from '../../core/index.ts';
import { temporaryFile } from './file-names.ts';

const { O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = constants;
/** Only the shim's user has access: records name pods, and decide what recovery rolls back. */
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;

/** An open folder and its identity. After {@link leave}, closes when no action uses the folder any more. */
class OpenFolder {
  readonly #ino: number;
  readonly #dev: number;
  /** The number of actions that use the folder. */
  #users = 0;
  #isLeft = false;

  constructor(
    private readonly handle: FileHandle,
    { ino, dev }: Stats,
  ) {
    this.#ino = ino;
    this.#dev = dev;
  }

  /** Whether a file status is of this folder. The folder is open, so no other folder can have its inode number. */
  is(stats: Stats | undefined): boolean {
    return stats?.ino === this.#ino && stats.dev === this.#dev;
  }

  /** Runs an action. The folder stays open until the action has ended. */
  async use<Result>(action: (handle: FileHandle) => Promise<Result>): Promise<Result> {
    this.#users += 1;
    try {
      return await action(this.handle);
    } finally {
      this.#users -= 1;
      this.#closeUnused();
    }
  }

  /** Closes the folder as soon as no action uses it. */
  leave(): void {
    this.#isLeft = true;
    this.#closeUnused();
  }

  /** Closes the folder at once, also while actions use it. */
  close(): Promise<void> {
    return this.handle.close();
  }

  #closeUnused(): void {
    // Nothing is left to sync, so a failed close loses nothing.
    if (this.#isLeft && this.#users === 0) this.handle.close().catch(() => undefined);
  }
}

/**
 * The folder of the records. It stays open, because opening and closing it took a third of the time of a change. Each
 * use checks that the path still names this folder and that its owner and mode are still safe, in the thread pool: a
 * disk that hangs, or a file system behind a network, may take seconds.
 */
export class StateFolder {
  #open: OpenFolder | undefined;
  /** The opening in progress. */
  #opening: Promise<OpenFolder> | undefined;
  #isClosed = false;

  constructor(private readonly path: string) {}

  /**
   * Runs an action with the open folder, and creates the folder when it is missing. Rejects when the path is not a
   * folder, or when another user may write to it: a user who can replace a record controls the limits of a pod.
   */
  async use(action: (folder: FileHandle) => Promise<void>): Promise<void> {
    const known = this.#open;
    const isDone = await known?.use(async (handle) => {
      if (!(await this.#isNamed(known))) return false;
      await action(handle);
      return true;
    });
    if (isDone === true) return;
    const folder = await this.#openedAgain(known);
    try {
      await folder.use(action);
    } finally {
      // A change that was queued when the folder was closed still reaches the disk.
      if (this.#isClosed) this.#leave(folder);
    }
  }

  /** Checks the folder as {@link use} does. */
  check(): Promise<void> {
    return this.use(() => Promise.resolve());
  }

  /** Whether the path still names this folder. Rejects when it is not private. */
  async #isNamed(folder: OpenFolder): Promise<boolean> {
    const named = await statOf(this.path);
    if (named === undefined || !folder.is(named)) return false;
    assertPrivate(named);
    return true;
  }

  /** Opens the folder again, once for all callers. `known` is the open folder to which the path no longer leads. */
  #openedAgain(known: OpenFolder | undefined): Promise<OpenFolder> {
    // Another caller may have opened it since the check.
    if (this.#open !== undefined && this.#open !== known) return Promise.resolve(this.#open);
    return (this.#opening ??= this.#openAgain().finally(() => (this.#opening = undefined)));
  }

  async #openAgain(): Promise<OpenFolder> {
    const handle = await openOrMake(this.path);
    const folder = new OpenFolder(handle, await privateStats(handle));
    const before = this.#open;
    this.#open = folder;
    before?.leave();
    return folder;
  }

  /**
   * Closes the folder. Does not wait for the actions that use it: on a disk that hangs they do not end. A later action
   * opens the folder for itself alone.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    const folder = this.#open;
    this.#open = undefined;
    await folder?.close();
  }

  #leave(folder: OpenFolder): void {
    if (this.#open === folder) this.#open = undefined;
    folder.leave();
  }
}

async function statOf(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return undefined;
    throw error;
  }
}

/** Reads the identity of an open folder. Closes the folder if other users may write to it. */
async function privateStats(handle: FileHandle): Promise<Stats> {
  try {
    const stats = await handle.stat();
    assertPrivate(stats);
    return stats;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function assertPrivate({ uid, mode }: Stats): void {
  const own = process.geteuid?.();
  if (uid !== own) throw new Error(`the state folder is owned by user ${uid}: expected the shim's user, ${own}`);
  if ((mode & 0o022) !== 0)
    throw new Error(
      `the state folder is writable by group or others (mode ${(mode & 0o777).toString(8)}): expected 700`,
    );
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
    // Another process created it first. The caller checks its owner and mode in any case.
    if (errnoOf(error) !== 'EEXIST') throw error;
  }
  await syncFolder(dirname(path));
  return openFolder(path);
}

const openFolder = (path: string): Promise<FileHandle> => open(path, O_RDONLY | O_DIRECTORY);

/**
 * Replaces a file atomically: at every instant it has the old content or the new one. With the open `folder` the change
 * is synced to the disk. Otherwise it may be missing, old, empty or incomplete after a crash of the machine. On
 * rejection, the file has the old content, or the new one if only the last step failed (the fsync of the folder).
 */
export async function replaceFile(
  path: string,
  folder: FileHandle | undefined,
  name: string,
  content: Buffer,
): Promise<void> {
  crashPoint('journal-write-before');
  const temporary = join(path, temporaryFile(name));
  try {
    await writeFile(temporary, content, folder !== undefined);
    crashPoint('journal-write-synced');
    await rename(temporary, join(path, name));
  } catch (error) {
    // On a full disk, a partial record uses the space that the next one needs. The first error is reported.
    await rm(temporary, { force: true }).catch(() => undefined);
    throw error;
  }
  crashPoint('journal-write-renamed');
  await folder?.sync();
  crashPoint('journal-write-after');
}

/** Writes a file and syncs it to the disk. Overwrites a file that a crash left behind. */
export const writeThrough = (file: string, content: Buffer): Promise<void> => writeFile(file, content, true);

async function writeFile(file: string, content: Buffer, isSynced: boolean): Promise<void> {
  const handle = await open(file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, FILE_MODE);
  try {
    // On a disk with space for only a part, the first write is short and the next one fails with the reason (ENOSPC).
    for (let at = 0; at < content.length; ) at += (await handle.write(content, at)).bytesWritten;
    if (isSynced) await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Removes a file; a missing one is fine. With the open `folder` the removal is synced to the disk, also when the file
 * is missing, since an earlier attempt may have failed at the sync. Otherwise the file may reappear after a crash of
 * the machine, but not after a crash of the process.
 */
export async function removeFile(path: string, folder: FileHandle | undefined, name: string): Promise<void> {
  crashPoint('journal-remove-before');
  try {
    await unlink(join(path, name));
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
  crashPoint('journal-remove-unlinked');
  await folder?.sync();
  crashPoint('journal-remove-after');
}

/** Reads a regular file of at most `max` bytes, without following a symbolic link. Rejects for anything else. */
export async function readBounded(file: string, max: number): Promise<Buffer> {
  // O_NONBLOCK: opening a pipe would otherwise wait for its writer forever.
  const handle = await open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw new Error('is not a regular file');
    if (stats.size > max) throw new Error(`has ${stats.size} bytes, more than the maximum of ${max}`);
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}
