import { obtain, present } from '../../../../tools/download/cache.ts';
import type { Part } from '../../../../tools/download/cache.ts';
import { type GoModule, buildingPrograms, goToolchain } from './go-module.ts';
import { timed } from '../../../../tools/download/progress.ts';
import type { Progress } from '../../../../tools/download/progress.ts';

const path = 'sigs.k8s.io/cri-tools';
const version = 'v1.36.0';

const criTools: GoModule = {
  path,
  version,
  linking: `-X ${path}/pkg/version.Version=${version}`,
  programs: { crictl: './cmd/crictl' },
  // critest is a test binary: its specs live in _test files.
  testPrograms: { critest: './cmd/critest' },
};

export type CriTool = 'crictl' | 'critest';

/** Whether crictl and critest are available, or why not. */
export type CriTools =
  | { readonly available: true; readonly part: Part }
  | { readonly available: false; readonly reason: string };

const recipe = { name: 'cri-tools', key: `${path} ${version} 2` };

/** crictl and critest, built from their Go module the first time. Without a Go toolchain they are unavailable. */
export async function obtainCriTools(cache: string, progress: Progress): Promise<CriTools> {
  const built = await present(cache, recipe);
  if (built) return { available: true, part: built };
  const toolchain = await goToolchain();
  if (toolchain === undefined) {
    return {
      available: false,
      reason: 'crictl and critest are not in the cache, and building them needs a Go toolchain (command "go")',
    };
  }
  const make = (folder: string): Promise<Record<string, string>> =>
    timed(progress, `building crictl and critest ${version} with ${toolchain} (one to three minutes)`, () =>
      buildingPrograms(criTools, folder, toolchain),
    );
  return { available: true, part: await obtain(cache, { ...recipe, make }, progress) };
}
