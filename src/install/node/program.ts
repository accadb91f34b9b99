import { createReadStream } from 'node:fs';
import { copyFile, mkdir, readlink, rename, rm, stat, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf } from '../../core/errors/index.ts';
import type { Change } from './change.ts';
import { filesIn } from './program-files.ts';
import { type Program, type ProgramFile, filesOf, originIn, originOf } from './programs.ts';

/** Which program, and where it goes. */
export interface ProgramPlaces {
  readonly program: Program;
  /** `/usr/local/lib/cri-resize-shim` */
  readonly to: string;
}

/** Whether the same program is there already, and nothing else. Rejects when the one to be installed is not whole. */
export async function isInPlace({ program, to }: ProgramPlaces): Promise<boolean> {
  if (originOf(program) === originIn(program, to)) return true;
  const files = await filesOf(program);
  const there = await filesIn(to, '.').catch(() => []);
  if (there.toSorted().join('\n') !== pathsOf(files).join('\n')) return false;
  for (const file of files) if (!(await isSame(file, join(to, file.path)))) return false;
  return true;
}

const pathsOf = (files: readonly ProgramFile[]): readonly string[] => files.map(({ path }) => path).toSorted();

/** Copies the program beside its place, and swaps it in: what is there runs or is read as a whole, old or new. */
export function placing({ program, to }: ProgramPlaces): Change {
  const [fresh, old] = [`${to}.new`, `${to}.old`];
  let state: 'untouched' | 'old aside' | 'placed' = 'untouched';
  let hadOne = false;
  return {
    says: `copy the program from ${originOf(program)} to ${to}`,
    async do() {
      await takeUp(to);
      await rm(fresh, { recursive: true, force: true });
      await copyProgram({ program, to: fresh });
      hadOne = await isThere(to);
      if (hadOne) await rename(to, old);
      state = 'old aside';
      await rename(fresh, to);
      state = 'placed';
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

/** Takes the program away. */
export function removingProgram(to: string): Change {
  const old = `${to}.old`;
  let isAside = false;
  return {
    says: `remove ${to}`,
    async do() {
      await takeUp(to);
      await rename(to, old);
      isAside = true;
    },
    async undo() {
      if (isAside) await rename(old, to);
    },
    forget: () => rm(old, { recursive: true, force: true }),
  };
}

/** What an installation that was killed has set aside: the program, if none has come to its place. */
async function takeUp(to: string): Promise<void> {
  const old = `${to}.old`;
  if (await isThere(to)) await rm(old, { recursive: true, force: true });
  else if (await isThere(old)) await rename(old, to);
}

/** Copies all files of the program, into a folder that need not be there. */
export async function copyProgram({ program, to }: ProgramPlaces): Promise<void> {
  for (const file of await filesOf(program)) await put(file, join(to, file.path));
}

async function put(file: ProgramFile, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true, mode: 0o755 });
  const target = await targetOf(file);
  if (target.kind === 'link') await symlink(target.to, to);
  else await copyFile(target.path, to);
}

async function isSame(file: ProgramFile, there: string): Promise<boolean> {
  const target = await targetOf(file);
  const linkThere = await linkOf(there);
  if (target.kind === 'link') return target.to === linkThere;
  return linkThere === undefined && (await isSameContent(target.path, there));
}

type Target = { readonly kind: 'link'; readonly to: string } | { readonly kind: 'file'; readonly path: string };

/** What a file is to be: a symbolic link of a folder stays one. */
async function targetOf(file: ProgramFile): Promise<Target> {
  if ('linkTo' in file) return { kind: 'link', to: file.linkTo };
  const to = await linkOf(file.from);
  return to === undefined ? { kind: 'file', path: file.from } : { kind: 'link', to };
}

const PIECES = { highWaterMark: 1024 * 1024 };

/** Piece by piece: the single executable is larger than what this process otherwise needs. */
async function isSameContent(one: string, other: string): Promise<boolean> {
  if ((await stat(one)).size !== (await stat(other)).size) return false;
  const [first, second] = [createReadStream(one, PIECES), createReadStream(other, PIECES)];
  try {
    const others = second[Symbol.asyncIterator]() as AsyncIterator<Buffer, undefined>;
    for await (const piece of first as AsyncIterable<Buffer>) {
      const { value } = await others.next();
      if (value === undefined || !piece.equals(value)) return false;
    }
    return true;
  } finally {
    first.destroy();
    second.destroy();
  }
}

/** Where a symbolic link leads; undefined when it is none. */
async function linkOf(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (errnoOf(error) === 'EINVAL') return undefined;
    throw error;
  }
}

export async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}
