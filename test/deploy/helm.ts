import { join } from 'node:path';
import { execa } from 'execa';
import { obtain, present } from '../../tools/download/cache.ts';
import { errnoOf } from '../../tools/download/errors.ts';
import { type GoModule, buildingPrograms, goToolchain } from '../support/node/parts/go-module.ts';
import { cacheRoot } from '../../tools/download/places.ts';
import { type Progress, timed } from '../../tools/download/progress.ts';

const module: GoModule = {
  path: 'helm.sh/helm/v3',
  version: 'v3.19.0',
  linking: '',
  programs: { helm: './cmd/helm' },
};
const recipe = { name: 'helm', key: `${module.path} ${module.version} 1` };

/** Returns a helm: one that was built before, the machine's own, or one that it builds with Go. Undefined without any of them. */
export async function prepareHelm(progress: Progress): Promise<string | undefined> {
  const built = await present(cacheRoot(), recipe);
  if (built !== undefined) return join(built.folder, 'bin/helm');
  if (await isOnPath()) return 'helm';
  const toolchain = await goToolchain();
  if (toolchain === undefined) return undefined;
  const what = `building helm ${module.version} with ${toolchain} (two to six minutes)`;
  const make = (folder: string): Promise<Record<string, string>> =>
    timed(progress, what, () => buildingPrograms(module, folder, toolchain));
  const { folder } = await obtain(cacheRoot(), { ...recipe, make }, progress);
  return join(folder, 'bin/helm');
}

async function isOnPath(): Promise<boolean> {
  try {
    await execa('helm', ['version']);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}
