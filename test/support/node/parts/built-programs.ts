import { obtain, present } from '../../../../tools/download/cache.ts';
import type { Part, Recipe } from '../../../../tools/download/cache.ts';
import { NodeError } from '../../../../tools/download/errors.ts';
import { cacheRoot } from '../../../../tools/download/places.ts';
import { type Progress, timed } from '../../../../tools/download/progress.ts';
import { type GoModule, buildingPrograms, goToolchain } from './go-module.ts';

export interface Built {
  readonly name: string;
  readonly modules: readonly GoModule[];
  /** The programs, for progress and errors. */
  readonly what: string;
  /** How long a build takes, for progress. */
  readonly time: string;
}

/** The programs are not in the cache, and this machine cannot build them. */
export class GoMissing extends NodeError {}

/** Programs that are built from their Go modules the first time. Throws {@link GoMissing} without a Go toolchain. */
export async function obtainBuilt({ name, modules: from, what, time }: Built, progress: Progress): Promise<Part> {
  const cache = cacheRoot();
  // Without the names of fields: renaming one is no reason for another build of minutes.
  const key = JSON.stringify(from.map((module) => Object.values(module) as unknown[]));
  const recipe: Pick<Recipe, 'name' | 'key'> = { name, key };
  const built = await present(cache, recipe);
  if (built) return built;
  const toolchain = await goToolchain();
  if (toolchain === undefined) throw new GoMissing(`building ${what} needs a Go toolchain (command "go")`);
  const make = async (folder: string): Promise<Record<string, string>> => {
    const versions: Record<string, string> = {};
    for (const module of from) Object.assign(versions, await buildingPrograms(module, folder, toolchain));
    return versions;
  };
  const building = `building ${what} with ${toolchain} (${time})`;
  return obtain(cache, { ...recipe, make: (folder) => timed(progress, building, () => make(folder)) }, progress);
}
