import { obtain, present } from '../../../../tools/download/cache.ts';
import type { Part } from '../../../../tools/download/cache.ts';
import { NodeError } from '../../../../tools/download/errors.ts';
import { type GoModule, buildingPrograms, goToolchain } from './go-module.ts';
import { timed } from '../../../../tools/download/progress.ts';
import type { Progress } from '../../../../tools/download/progress.ts';

/**
 * The containerd that Debian does not have yet: the first that implements UpdatePodSandboxResources, in its own way.
 */
const version = '2.3.7';
const path = 'github.com/containerd/containerd/v2';

const module: GoModule = {
  path,
  version: `v${version}`,
  linking: `-X ${path}/version.Version=${version}`,
  programs: {
    containerd: './cmd/containerd',
    'containerd-shim-runc-v2': './cmd/containerd-shim-runc-v2',
    ctr: './cmd/ctr',
  },
};

/** containerd of release 2.3, built from its Go module the first time. Throws NodeError without a Go toolchain. */
export async function obtainBuiltContainerd(cache: string, progress: Progress): Promise<Part> {
  const recipe = { name: 'containerd-2.3', key: `${path} ${version} 1` };
  const built = await present(cache, recipe);
  if (built) return built;
  const toolchain = await goToolchain();
  if (toolchain === undefined)
    throw new NodeError(
      `containerd ${version} is not in the cache, and building it needs a Go toolchain (command "go")`,
    );
  const make = async (folder: string): Promise<Record<string, string>> => {
    const versions = await timed(
      progress,
      `building containerd ${version} with ${toolchain} (two to five minutes)`,
      () => buildingPrograms(module, folder, toolchain),
    );
    return { ...versions, containerd: version };
  };
  return obtain(cache, { ...recipe, make }, progress);
}
