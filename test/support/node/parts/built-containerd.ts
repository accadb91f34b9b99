import { obtain, present } from '../../../../tools/download/cache.ts';
import type { Part } from '../../../../tools/download/cache.ts';
import { NodeError } from '../../../../tools/download/errors.ts';
import { type GoModule, buildingPrograms, goToolchain } from './go-module.ts';
import { timed } from '../../../../tools/download/progress.ts';
import type { Progress } from '../../../../tools/download/progress.ts';

/** The releases that Debian does not have, and the version of each that is built. */
export const builtVersions = { '2.0': '2.0.14', '2.2': '2.2.9', '2.3': '2.3.7', '2.4': '2.4.2' } as const;
export type BuiltRelease = keyof typeof builtVersions;
export const builtReleases = Object.keys(builtVersions) as BuiltRelease[];

export const containerdPath = 'github.com/containerd/containerd/v2';

const moduleOf = (version: string): GoModule => ({
  path: containerdPath,
  version: `v${version}`,
  linking: `-X ${containerdPath}/version.Version=${version}`,
  programs: {
    containerd: './cmd/containerd',
    'containerd-shim-runc-v2': './cmd/containerd-shim-runc-v2',
    ctr: './cmd/ctr',
  },
});

const recipeOf = (release: BuiltRelease): { readonly name: string; readonly key: string } => ({
  name: `containerd-${release}`,
  key: `${containerdPath} ${builtVersions[release]} 1`,
});

/** Whether {@link obtainBuiltContainerd} has it or can build it. */
export const canObtainContainerd = async (release: BuiltRelease, cache: string): Promise<boolean> =>
  (await present(cache, recipeOf(release))) !== undefined || (await goToolchain()) !== undefined;

/** containerd of a release, built from its Go module the first time. Throws NodeError without a Go toolchain. */
export async function obtainBuiltContainerd(release: BuiltRelease, cache: string, progress: Progress): Promise<Part> {
  const version = builtVersions[release];
  const recipe = recipeOf(release);
  const built = await present(cache, recipe);
  if (built) return built;
  const toolchain = await goToolchain();
  if (toolchain === undefined)
    throw new NodeError(
      `containerd ${version} is not in the cache, and building it needs a Go toolchain (command "go")`,
    );
  const make = async (folder: string): Promise<Record<string, string>> => {
    const inputs = await timed(progress, `building containerd ${version} with ${toolchain} (two to five minutes)`, () =>
      buildingPrograms(moduleOf(version), folder, toolchain),
    );
    return { ...inputs, containerd: version };
  };
  return obtain(cache, { ...recipe, make }, progress);
}
