import { chmod, cp, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import type { DebianPackage, Suite } from './debian.ts';
import { NodeError } from './errors.ts';

/** A part made of packages, and what of them is kept: a flat bin/ and lib/, whatever folders the packages use. */
export interface PackagedPart {
  readonly name: string;
  readonly packages: readonly DebianPackage[];
  readonly arrange: (unpacked: string, folder: string, finalFolder: string) => Promise<void>;
  /** Raised when `arrange` changes, so that parts made by an older one are not used. */
  readonly revision: number;
}

export function of(suite: Suite, ...names: string[]): DebianPackage[] {
  return names.map((name) => ({ name, suite }));
}

export const triplet = 'x86_64-linux-gnu';
export const loader = 'ld-linux-x86-64.so.2';
export const libc = [loader, 'libc.so.6', 'libm.so.6'].map((name) => `usr/lib/${triplet}/${name}`);

/**
 * Points a program, or a library, at the libraries that it came with; the host's own libc may be older than it needs. `all they
 * need` holds for the libraries of its libraries too.
 */
export async function useLibraries(
  unpacked: string,
  program: string,
  folder: string,
  libraries: 'libraries' | 'own libc' | 'all they need' | 'own libc and all they need',
): Promise<void> {
  const interpreter = libraries.startsWith('own libc') ? ['--set-interpreter', join(folder, loader)] : [];
  // RPATH is handed down, RUNPATH is not.
  const handedDown = libraries.endsWith('all they need') ? ['--force-rpath'] : [];
  const options = [...interpreter, ...handedDown, '--set-rpath', folder, program];
  await execa(join(unpacked, 'usr/bin/patchelf'), options);
}

/** Copies programs flat into one folder. Of two names for one thing (a folder that was merged) the one that is there. */
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
