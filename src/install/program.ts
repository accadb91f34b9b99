import { copyFile, mkdir, readFile, readlink, rename, rm, stat, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf } from '../errors/index.ts';
import type { Change } from './change.ts';
import { programFiles } from './program-files.ts';

/** Where the program comes from and where it goes. */
export interface ProgramPlaces {
  /** A checkout that is built, or the self-contained folder. */
  readonly from: string;
  /** `/usr/local/lib/cri-resize-shim` */
  readonly to: string;
  /** As process.arch. */
  readonly arch: string;
}

/** Whether the same program is there already. Rejects when the one to be installed is not whole. */
export async function isInPlace({ from, to, arch }: ProgramPlaces): Promise<boolean> {
  if (from === to) return true;
  const files = await programFiles(from, arch);
  const there = await programFiles(to, arch).catch(() => []);
  if (there.join('\n') !== files.join('\n')) return false;
  for (const file of files) if (!(await isSame(join(from, file), join(to, file)))) return false;
  return true;
}

/** Copies the program beside its place, and swaps it in: what is there runs or is read as a whole, old or new. */
export function placing(places: ProgramPlaces): Change {
  const { from, to, arch } = places;
  const [fresh, old] = [`${to}.new`, `${to}.old`];
  let state: 'untouched' | 'old aside' | 'placed' = 'untouched';
  let hadOne = false;
  return {
    says: `copy the program from ${from} to ${to}`,
    async do() {
      await takeUp(to);
      await rm(fresh, { recursive: true, force: true });
      for (const file of await programFiles(from, arch)) await copy(join(from, file), join(fresh, file));
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

async function copy(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true, mode: 0o755 });
  const target = await linkOf(from);
  if (target === undefined) await copyFile(from, to);
  else await symlink(target, to);
}

async function isSame(one: string, other: string): Promise<boolean> {
  const [link, otherLink] = [await linkOf(one), await linkOf(other)];
  if (link !== undefined || otherLink !== undefined) return link === otherLink;
  return (await readFile(one)).equals(await readFile(other));
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
