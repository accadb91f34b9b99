import { createReadStream, existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readFile, readlink, rename, rm, stat, statfs, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import * as z from 'zod/mini';
import { errnoOf, MiB, syncFile, syncFolder } from '../../core/index.ts';
import type { Change } from '../host/change.ts';
import { assertReplaceable } from '../host/files.ts';
import {
  EXECUTABLE,
  filesIn,
  filesOf,
  OWN_NODE,
  originIn,
  originOf,
  type Program,
  type ProgramFile,
} from '../host/programs.ts';
import { SERVICE, type Site } from '../host/site.ts';
import { unitProperties } from '../host/systemd.ts';
import { Refusal } from '../kubelet/setting.ts';
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

/** Copies the program next to its target and swaps the folders: the target is complete even after a power cut. */
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
  // A Node in a home directory may be executable only by its user.
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

/** Returns a file's form at its target. Symbolic links stay links. */
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

/** Whether two streams have the same bytes. Chunks may differ: a read may return less than it asked for. */
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

const description = z.object({ version: z.string() });
const ANSWER_MS = 10_000;
/** Semantic Versioning. Checked because the text comes from a file and is printed. */
const VERSION = /^\d+\.\d+\.\d+[\w.+-]{0,64}$/;

/** Returns the version of the program in this folder; undefined if there is no program or its version is unknown. */
export async function installedVersion(to: string): Promise<string | undefined> {
  const found = (await fromDescription(to)) ?? (await fromProgram(to));
  return found !== undefined && VERSION.test(found) ? found : undefined;
}

/** The folder has a package.json. */
async function fromDescription(to: string): Promise<string | undefined> {
  try {
    return description.parse(JSON.parse(await readFile(join(to, 'package.json'), 'utf8'))).version;
  } catch {
    return undefined;
  }
}

/** The single executable has its version inside. */
async function fromProgram(to: string): Promise<string | undefined> {
  const program = join(to, 'bin/resizectl');
  if (!existsSync(program)) return undefined;
  const { stdout, failed } = await execa(program, ['--version'], {
    reject: false,
    timeout: ANSWER_MS,
    stdin: 'ignore',
  });
  return failed ? undefined : stdout.trim();
}

/** Returns the kind of an installation: `install 0.2.0`, `upgrade 0.1.0 to 0.2.0`. */
export function changeOfVersion(from: string | undefined, to: string): string {
  if (from === undefined) return `install ${to}`;
  if (from === to) return `another build of ${to}`;
  return `${isNewer(to, from) ? 'upgrade' : 'downgrade'} ${from} to ${to}`;
}

/** Compares major, minor and patch. A suffix such as `-rc.1` sorts before no suffix (Semantic Versioning, 11). */
function isNewer(one: string, other: string): boolean {
  const numbers = (text: string): number[] => text.split(/[-+]/, 1).join().split('.').map(Number);
  const [first, second] = [numbers(one), numbers(other)];
  for (const [index, number] of first.entries())
    if (number !== (second[index] ?? 0)) return number > (second[index] ?? 0);
  return other.includes('-') && !one.includes('-');
}

/** Folder of a program installed by a package. */
export const PACKAGE_FOLDER = '/usr/lib/cri-resize-shim';

/** The installation that systemd has loaded units of: a package, `resizectl install`, or none. */
export type Owner = 'package' | 'resizectl' | 'none';

/** Returns whose units systemd has loaded, by the folder of the service's file. */
export async function unitOwner({ unitFolder }: Pick<Site, 'unitFolder'>): Promise<Owner> {
  const path = (await unitProperties(SERVICE, ['FragmentPath']))('FragmentPath')[0] ?? '';
  if (path === '') return 'none';
  return dirname(path) === unitFolder ? 'resizectl' : 'package';
}

/** Throws Refusal if the units belong to an installation of the other kind. */
export async function refuseOtherOwner(
  site: Pick<Site, 'unitFolder' | 'commandFile'>,
  own: Exclude<Owner, 'none'>,
): Promise<void> {
  const owner = await unitOwner(site);
  if (owner === 'none' || owner === own) return;
  if (owner === 'resizectl')
    throw new Refusal(
      `the units in ${site.unitFolder} belong to an installation of resizectl, not to the package`,
      `run ${site.commandFile} uninstall first`,
    );
  throw new Refusal(
    'the units of the shim belong to a package',
    'remove the package with its package manager, or run its own /usr/bin/resizectl uninstall',
  );
}

/** Whether a folder has the program: as a folder, or as the single executable. */
export const hasProgram = async (folder: string): Promise<boolean> =>
  (await isThere(join(folder, 'package.json'))) || isThere(join(folder, EXECUTABLE));

/** Checks whether there is more than one installation on this node. */
export async function checkInstallation(programFolder: string, ofPackage = PACKAGE_FOLDER): Promise<Finding> {
  const { ok, warning } = findingsOf('installation');
  const own = join(programFolder, 'cri-resize-shim');
  const [isPackaged, isOwn] = [await hasProgram(ofPackage), await hasProgram(own)];
  if (!isPackaged || !isOwn) return ok(isPackaged ? `package at ${ofPackage}` : isOwn ? own : 'none');
  return warning(
    `two: a package at ${ofPackage}, and ${own}; units in /etc/systemd/system take precedence over those of the package`,
    `remove one: the package with its package manager, or the other with ${dirname(programFolder)}/bin/resizectl uninstall`,
  );
}
