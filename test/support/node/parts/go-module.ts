import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import { execa } from 'execa';
import type { Part, Recipe } from '../../../../tools/download/cache.ts';
import { obtain, present } from '../../../../tools/download/cache.ts';
import { errnoOf, messageOf, NodeError } from '../../../../tools/download/errors.ts';
import { cacheRoot } from '../../../../tools/download/places.ts';
import type { Progress } from '../../../../tools/download/progress.ts';
import { timed } from '../../../../tools/download/progress.ts';

/** Programs of a Go module, whose sources come from the Go module proxy. */
export interface GoModule {
  readonly path: string;
  /** `v1.36.0` */
  readonly version: string;
  /** Linker flags in addition to those that omit symbols, such as the version that a program reports. */
  readonly linking: string;
  /** The names of the programs and their packages in the module: `./cmd/crictl`. */
  readonly programs: Readonly<Record<string, string>>;
  /** Packages whose tests are the program. */
  readonly testPrograms?: Readonly<Record<string, string>>;
  /** Test programs of ours that import the module: their names, and the source of each. */
  readonly ownTestPrograms?: Readonly<Record<string, string>>;
  /** Programs of ours that import the module: their names, and the source of each. */
  readonly ownPrograms?: Readonly<Record<string, string>>;
  /**
   * The version of modules that are released with this one. It requires them as `v0.0.0` and has them in its own
   * repository.
   */
  readonly siblingVersion?: string;
  /** The versions of other modules, for a module without go.mod, which would otherwise get their newest versions. */
  readonly dependencies?: Readonly<Record<string, string>>;
  /** Other files: their names, and their paths in the module. */
  readonly files?: Readonly<Record<string, string>>;
}

/** The version of the Go toolchain; undefined without one. */
export async function goToolchain(): Promise<string | undefined> {
  try {
    return (await execa('go', ['env', 'GOVERSION'])).stdout;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw new NodeError(
      `"go env GOVERSION" failed: ${messageOf(error)}; repair the Go toolchain or remove it from PATH`,
    );
  }
}

/** Builds the programs into bin/ of a folder, and copies the other files there. Returns the input versions. */
export async function buildingPrograms(
  module: GoModule,
  folder: string,
  toolchain: string,
): Promise<Record<string, string>> {
  const { path, version, linking, programs, testPrograms = {}, ownTestPrograms = {}, ownPrograms = {} } = module;
  const workspace = await mkdtemp(join(tmpdir(), 'cri-resize-shim-go-'));
  const go = async (...args: string[]): Promise<string> => {
    try {
      const { stdout } = await execa('go', args, {
        cwd: workspace,
        stdin: 'ignore',
        // A workspace file or flags of the machine must not affect the build.
        env: { GOFLAGS: '-mod=mod', GOWORK: 'off', GO111MODULE: 'on', GOTOOLCHAIN: 'local', CGO_ENABLED: '0' },
      });
      return stdout;
    } catch (error) {
      const advice = `check that the Go module proxy can be reached and that ${toolchain} is new enough`;
      throw new NodeError(`building ${path}: "go ${args.join(' ')}" failed; ${advice}\n${messageOf(error)}`);
    }
  };
  const flags = (name: string, packagePath: string): string[] => [
    '-trimpath',
    `-ldflags=-s -w ${linking}`,
    '-o',
    join(folder, 'bin', name),
    packagePath,
  ];
  try {
    await requireModule(module, go, folder);
    for (const [name, at] of Object.entries(programs)) await go('build', ...flags(name, posix.join(path, at)));
    for (const [name, at] of Object.entries(testPrograms)) await go('test', '-c', ...flags(name, posix.join(path, at)));
    const writeOwn = async (own: string, file: string, source: string): Promise<string> => {
      await mkdir(join(workspace, own));
      await writeFile(join(workspace, own, file), source);
      return `./${own}`;
    };
    for (const [name, source] of Object.entries(ownTestPrograms)) {
      const at = await writeOwn(name.replace(/\.test$/, ''), 'main_test.go', source);
      await go('test', '-c', ...flags(name, at));
    }
    for (const [name, source] of Object.entries(ownPrograms))
      await go('build', ...flags(name, await writeOwn(name, 'main.go', source)));
  } finally {
    await rm(workspace, { recursive: true, force: true });
  }
  return { [path]: version, go: toolchain };
}

/** Makes a module that requires this one, in the folder where `go` runs, and copies its other files into `folder`. */
async function requireModule(
  { path, version, siblingVersion, dependencies = {}, files = {} }: GoModule,
  go: (...args: string[]) => Promise<string>,
  folder: string,
): Promise<void> {
  await go('mod', 'init', 'programs');
  const download = await go('mod', 'download', '-json', `${path}@${version}`);
  const { GoMod, Dir } = JSON.parse(download) as { GoMod: string; Dir: string };
  for (const [name, at] of Object.entries(files)) await copyFile(join(Dir, at), join(folder, name));
  if (siblingVersion !== undefined) {
    const siblings = (await readFile(GoMod, 'utf8')).matchAll(/^\s(\S+) v0\.0\.0$/gm);
    const replacing = [...siblings].map(([, name = '']) => `-replace=${name}=${name}@${siblingVersion}`);
    await go('mod', 'edit', ...replacing);
  }
  const required = Object.entries({ [path]: version, ...dependencies });
  await go('get', ...required.map(([name, at]) => `${name}@${at}`));
}

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

/** The key does not contain field names, because renaming a field must not cause another build of minutes. */
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
 * Returns programs, which are built from their Go modules the first time: once for each content of their recipe, by the
 * first command that needs them. Throws {@link GoMissing} without a Go toolchain.
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

/** The releases that Debian does not have, and the version of each that is built. */
export const builtVersions = { '2.0': '2.0.14', '2.2': '2.2.9', '2.3': '2.3.7', '2.4': '2.4.2' } as const;
export type BuiltRelease = keyof typeof builtVersions;
export const builtReleases = Object.keys(builtVersions) as BuiltRelease[];

export const containerdPath = 'github.com/containerd/containerd/v2';

/** containerd of a release, its shim and ctr. */
export const builtContainerd = (release: BuiltRelease): Built => ({
  name: `containerd-${release}`,
  modules: [
    {
      path: containerdPath,
      version: `v${builtVersions[release]}`,
      linking: `-X ${containerdPath}/version.Version=${builtVersions[release]}`,
      programs: {
        containerd: './cmd/containerd',
        'containerd-shim-runc-v2': './cmd/containerd-shim-runc-v2',
        ctr: './cmd/ctr',
      },
    },
  ],
  what: `containerd ${builtVersions[release]}`,
  time: 'two to five minutes',
});

const path = 'sigs.k8s.io/cri-tools';
const version = 'v1.36.0';

/** crictl and critest. */
export const criTools: Built = {
  name: 'cri-tools',
  modules: [
    {
      path,
      version,
      linking: `-X ${path}/pkg/version.Version=${version}`,
      programs: { crictl: './cmd/crictl' },
      // critest is a test binary: its specs are in _test files.
      testPrograms: { critest: './cmd/critest' },
    },
  ],
  what: `crictl and critest ${version}`,
  time: 'one to three minutes',
};
