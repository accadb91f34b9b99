import { createReadStream } from 'node:fs';
import { chmod, copyFile, mkdir, readlink, rename, rm, stat, statfs, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';
import { syncFile, syncFolder } from '../../core/files/index.ts';
import { MiB } from '../../core/quantities/index.ts';
import {
  type Change,
  type Program,
  OWN_NODE,
  type ProgramFile,
  assertReplaceable,
  filesIn,
  filesOf,
  originIn,
  originOf,
} from '../host/index.ts';
import { type Finding, findingsOf } from './finding.ts';

/** A program, and the folder into which it is installed. */
export interface ProgramPlaces {
  readonly program: Program;
  /** `/usr/local/lib/cri-resize-shim` */
  readonly to: string;
}

/** Whether the folder has exactly the files of this program. Rejects if the program to install is incomplete. */
export async function isInPlace({ program, to }: ProgramPlaces): Promise<boolean> {
  if (originOf(program) === originIn(program, to)) return true;
  const files = await filesOf(program);
  const there = await filesIn(to, '.').catch(() => []);
  if (there.toSorted().join('\n') !== pathsOf(files).join('\n')) return false;
  for (const file of files) if (!(await isSame(file, join(to, file.path)))) return false;
  return true;
}

const pathsOf = (files: readonly ProgramFile[]): readonly string[] => files.map(({ path }) => path).toSorted();

/** Copies the program next to its target folder and swaps the folders, so that the target is always complete, also after a power cut. */
export function placing({ program, to }: ProgramPlaces): Change {
  const [fresh, old] = [`${to}.new`, `${to}.old`];
  let state: 'untouched' | 'old aside' | 'placed' = 'untouched';
  let hadOne = false;
  return {
    description: `copy the program from ${originOf(program)} to ${to}`,
    probe: () => assertReplaceable(to),
    async do() {
      await recoverOld(to);
      await rm(fresh, { recursive: true, force: true });
      await copyProgram({ program, to: fresh });
      hadOne = await isThere(to);
      if (hadOne) await rename(to, old);
      state = 'old aside';
      await rename(fresh, to);
      state = 'placed';
      await syncFolder(dirname(to));
    },
    async undo() {
      await rm(fresh, { recursive: true, force: true });
      if (state === 'untouched') return;
      if (state === 'placed') await rm(to, { recursive: true });
      if (hadOne) await rename(old, to);
    },
    forget: () => rm(old, { recursive: true, force: true }),
  };
}

/** Removes the program. */
export function removingProgram(to: string): Change {
  const old = `${to}.old`;
  let isAside = false;
  return {
    description: `remove ${to}`,
    probe: () => assertReplaceable(to),
    async do() {
      await recoverOld(to);
      await rename(to, old);
      isAside = true;
      await syncFolder(dirname(to));
    },
    async undo() {
      if (isAside) await rename(old, to);
    },
    forget: () => rm(old, { recursive: true, force: true }),
  };
}

/** Recovers from an installation that was killed: restores the old program if there is no new one. */
async function recoverOld(to: string): Promise<void> {
  const old = `${to}.old`;
  if (await isThere(to)) await rm(old, { recursive: true, force: true });
  else if (await isThere(old)) await rename(old, to);
}

/** Copies all files of the program into a folder, and creates it if needed. */
export async function copyProgram({ program, to }: ProgramPlaces): Promise<void> {
  for (const file of await filesOf(program)) await put(file, join(to, file.path));
}

async function put(file: ProgramFile, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true, mode: 0o755 });
  const target = await targetOf(file);
  if (target.kind === 'link') return symlink(target.to, to);
  await copyFile(target.path, to);
  // A Node below a home may be one for its user alone.
  if (file.path === OWN_NODE) await chmod(to, 0o755);
  await syncFile(to);
}

async function isSame(file: ProgramFile, there: string): Promise<boolean> {
  const target = await targetOf(file);
  const linkThere = await linkOf(there);
  if (target.kind === 'link') return target.to === linkThere;
  return linkThere === undefined && (await isSameContent(target.path, there));
}

type Target = { readonly kind: 'link'; readonly to: string } | { readonly kind: 'file'; readonly path: string };

/** The target form of a file. Symbolic links stay links. */
async function targetOf(file: ProgramFile): Promise<Target> {
  if ('linkTo' in file) return { kind: 'link', to: file.linkTo };
  const to = await linkOf(file.from);
  return to === undefined ? { kind: 'file', path: file.from } : { kind: 'link', to };
}

const PIECES = { highWaterMark: MiB };

/** Compares in chunks: the single executable is larger than the memory that this process needs otherwise. */
async function isSameContent(one: string, other: string): Promise<boolean> {
  if ((await stat(one)).size !== (await stat(other)).size) return false;
  const [first, second] = [createReadStream(one, PIECES), createReadStream(other, PIECES)];
  try {
    return await areSameBytes(first, second);
  } finally {
    first.destroy();
    second.destroy();
  }
}

/** Whether two streams have the same bytes. Their chunks may end at different places: a read may return less than it was asked for. */
export async function areSameBytes(one: AsyncIterable<Buffer>, other: AsyncIterable<Buffer>): Promise<boolean> {
  const others = other[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of one) {
    for (let at = 0; at < piece.length; ) {
      if (rest.length === 0) {
        const next = await others.next();
        if (next.done === true) return false;
        rest = next.value;
      }
      const length = Math.min(rest.length, piece.length - at);
      if (!rest.subarray(0, length).equals(piece.subarray(at, at + length))) return false;
      rest = rest.subarray(length);
      at += length;
    }
  }
  return rest.length === 0 && (await others.next()).done === true;
}

/** Returns the target of a symbolic link; undefined if the path is not a link. */
async function linkOf(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (errnoOf(error) === 'EINVAL') return undefined;
    throw error;
  }
}

/** Whether a file or folder exists. Rejects if that cannot be read. */
export async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}

/** Checks the free disk space. @param least in bytes */
export async function checkSpace(check: string, folder: string, least: number): Promise<Finding> {
  const { ok, failed } = findingsOf(check);
  const at = await nearest(folder);
  const { bavail, bsize } = await statfs(at);
  const free = bavail * bsize;
  const found = `${Math.floor(free / MiB)} MiB free for ${folder}`;
  return free >= least ? ok(found) : failed(found, `free disk space: ${Math.ceil(least / MiB)} MiB are needed`);
}

/** Returns the folder itself, or its closest existing parent. */
async function nearest(folder: string): Promise<string> {
  for (let at = folder; ; at = dirname(at)) if ((await isThere(at)) || at === dirname(at)) return at;
}
