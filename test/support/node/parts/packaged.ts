import { chmod, cp, mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import type { Part, Recipe } from '../../../../tools/download/cache.ts';
import { obtain, present } from '../../../../tools/download/cache.ts';
import { NodeError } from '../../../../tools/download/errors.ts';
import type { Progress } from '../../../../tools/download/progress.ts';
import type { DebianPackage, DownloadedPackage, Suite } from './debian.ts';
import { Archive, unpack } from './debian.ts';

/**
 * A part made of packages, with a selection of their files in a flat bin/ and lib/, independent of the folders in the
 * packages.
 */
export interface PackagedPart {
  readonly name: string;
  readonly packages: readonly DebianPackage[];
  readonly arrange: (unpacked: string, folder: string, finalFolder: string) => Promise<void>;
  /** Increased when `arrange` changes, so that parts of an older version are not used. */
  readonly revision: number;
}

export function of(suite: Suite, ...names: string[]): DebianPackage[] {
  return names.map((name) => ({ name, suite }));
}

export const triplet = 'x86_64-linux-gnu';
export const loader = 'ld-linux-x86-64.so.2';
export const libc = [loader, 'libc.so.6', 'libm.so.6'].map((name) => `usr/lib/${triplet}/${name}`);

/** Copies all shared libraries flat into one folder. */
export async function keepLibraries(unpacked: string, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const place of [`lib/${triplet}`, `usr/lib/${triplet}`, `usr/lib/${triplet}/systemd`]) {
    const names = await readdir(join(unpacked, place)).catch(() => []);
    for (const name of names.filter((candidate) => candidate.includes('.so'))) {
      const file = join(unpacked, place, name);
      if ((await stat(file)).isFile()) await cp(file, join(folder, name), { dereference: true });
    }
  }
}

/**
 * Points a program or a library at its own libraries, because the host's libc may be too old. `all they need` also
 * applies to the libraries of its libraries.
 */
export async function useLibraries(
  unpacked: string,
  program: string,
  folder: string,
  libraries: 'libraries' | 'own libc' | 'all they need' | 'own libc and all they need',
): Promise<void> {
  const interpreter = libraries.startsWith('own libc') ? ['--set-interpreter', join(folder, loader)] : [];
  // Libraries inherit an RPATH, but not a RUNPATH.
  const inherited = libraries.endsWith('all they need') ? ['--force-rpath'] : [];
  const options = [...interpreter, ...inherited, '--set-rpath', folder, program];
  await execa(join(unpacked, 'usr/bin/patchelf'), options);
}

/**
 * Copies programs flat into one folder. If a program has two possible paths (from a merged folder), the existing one is
 * used.
 */
export async function keep(unpacked: string, paths: readonly string[], folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const byName = new Map<string, string[]>();
  for (const path of paths)
    byName.set(path.split('/').at(-1) ?? path, [...(byName.get(path.split('/').at(-1) ?? path) ?? []), path]);
  for (const [name, places] of byName) {
    const target = join(folder, name);
    let found = false;
    for (const place of places) {
      found ||= await cp(join(unpacked, place), target, { dereference: true }).then(
        () => true,
        () => false,
      );
    }
    if (!found) throw new NodeError(`the unpacked packages have no ${places.join(' or ')}`);
    await chmod(target, 0o755);
  }
}

type PartsOf<Wanted extends readonly (PackagedPart | undefined)[]> = {
  -readonly [Index in keyof Wanted]: Part | Extract<Wanted[Index], undefined>;
};

/** Returns the requested parts, from the cache if they are complete. Reads the package index only for the others. */
export async function obtainPackaged<const Wanted extends readonly (PackagedPart | undefined)[]>(
  cache: string,
  wanted: Wanted,
  progress: Progress,
): Promise<PartsOf<Wanted>> {
  const missing: PackagedPart[] = [];
  for (const part of wanted)
    if (part && !(await present(cache, { name: part.name, key: keyOf(part) }))) missing.push(part);
  const suites = [...new Set(missing.flatMap((part) => part.packages.map(({ suite }) => suite)))];
  const downloads = new Downloads(suites, progress);
  try {
    const obtained = wanted.map(async (part) => part && obtain(cache, recipeOf(part, downloads), progress));
    // The archive is closed once no part needs it.
    await Promise.allSettled(obtained);
    return (await Promise.all(obtained)) as PartsOf<Wanted>;
  } finally {
    await downloads.close();
  }
}

function keyOf(part: PackagedPart): string {
  return JSON.stringify([part.revision, part.packages]);
}

function recipeOf(part: PackagedPart, downloads: Downloads): Recipe {
  return {
    name: part.name,
    key: keyOf(part),
    async make(folder, finalFolder) {
      const versions: Record<string, string> = {};
      const unpacked = await mkdtemp(join(tmpdir(), 'cri-resize-shim-unpacked-'));
      try {
        for (const file of await downloads.get(part.packages)) {
          await unpack(file, unpacked);
          versions[file.name] = file.version;
        }
        await part.arrange(unpacked, folder, finalFolder);
      } finally {
        await rm(unpacked, { recursive: true, force: true });
      }
      return versions;
    },
  };
}

/** The archive, opened when the first package is needed. */
class Downloads {
  private archive: Promise<Archive> | undefined;

  constructor(
    private readonly suites: readonly Suite[],
    private readonly progress: Progress,
  ) {}

  async get(wanted: readonly DebianPackage[]): Promise<DownloadedPackage[]> {
    this.archive ??= Archive.open(this.suites, this.progress);
    return (await this.archive).fetch(wanted, this.progress);
  }

  async close(): Promise<void> {
    const archive = await this.archive?.catch(() => undefined);
    await archive?.close();
  }
}
