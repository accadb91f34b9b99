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

/** The key has no names of fields: renaming one is no reason for another build of minutes. */
const recipeOf = ({ name, modules }: Built): Pick<Recipe, 'name' | 'key'> => ({
  name,
  key: JSON.stringify(modules.map((module) => Object.values(module) as unknown[])),
});

/** Whether the programs have been built. */
export const isCached = async (built: Built): Promise<boolean> =>
  (await present(cacheRoot(), recipeOf(built))) !== undefined;

/** Whether {@link obtainBuilt} has the programs or can build them. */
export const canObtain = async (built: Built): Promise<boolean> =>
  (await isCached(built)) || (await goToolchain()) !== undefined;

/**
 * Programs that are built from their Go modules the first time: once for each content of their recipe, by whichever
 * command needs them first. Throws {@link GoMissing} without a Go toolchain.
 */
export async function obtainBuilt(built: Built, progress: Progress): Promise<Part> {
  const { modules, what, time } = built;
  const [cache, recipe] = [cacheRoot(), recipeOf(built)];
  const part = await present(cache, recipe);
  if (part) return part;
  const toolchain = await goToolchain();
  if (toolchain === undefined)
    throw new GoMissing(`${what} is not in the cache, and building it needs a Go toolchain (command "go")`);
  const make = async (folder: string): Promise<Record<string, string>> => {
    const versions: Record<string, string> = {};
    for (const module of modules) Object.assign(versions, await buildingPrograms(module, folder, toolchain));
    return versions;
  };
  const building = `building ${what} with ${toolchain} (${time})`;
  return obtain(cache, { ...recipe, make: (folder) => timed(progress, building, () => make(folder)) }, progress);
}
