import { obtain, present } from '../../tools/download/cache.ts';
import type { Part, Recipe } from '../../tools/download/cache.ts';
import { NodeError } from '../../tools/download/errors.ts';
import { type GoModule, buildingPrograms, goToolchain } from '../support/node/parts/go-module.ts';
import { cacheRoot } from '../../tools/download/places.ts';
import { type Progress, timed } from '../../tools/download/progress.ts';

/** The kubelet of the tests. Its libraries are released next to it with the same minor and patch version. */
export const kubeletVersion = 'v1.36.3';

const version = 'k8s.io/component-base/version';
const modules: readonly GoModule[] = [
  {
    path: 'k8s.io/kubernetes',
    version: kubeletVersion,
    siblingVersion: kubeletVersion.replace('v1.', 'v0.'),
    linking: `-X ${version}.gitVersion=${kubeletVersion} -X ${version}.gitMajor=1 -X ${version}.gitMinor=36`,
    programs: { kubelet: './cmd/kubelet', 'kube-apiserver': './cmd/kube-apiserver' },
  },
  { path: 'go.etcd.io/etcd/server/v3', version: 'v3.6.8', linking: '', programs: { etcd: '.' } },
];

/**
 * kubelet, kube-apiserver and etcd, built from their Go modules the first time. Throws NodeError without a Go
 * toolchain.
 */
export function obtainKubernetes(progress: Progress): Promise<Part> {
  const what = `kubelet ${kubeletVersion}, kube-apiserver and etcd`;
  return obtainBuilt({ name: 'kubernetes', modules, what, time: 'five to twenty minutes' }, progress);
}

export const vpaVersion = 'v1.8.1';

const vpaModules: readonly GoModule[] = [
  {
    path: 'k8s.io/autoscaler/vertical-pod-autoscaler',
    version: vpaVersion,
    linking: '',
    programs: { 'vpa-updater': './pkg/updater' },
    files: { 'crd.yaml': 'deploy/vpa-v1-crd-gen.yaml' },
  },
];

/**
 * The updater of the Vertical Pod Autoscaler, with the definition of its objects (crd.yaml). Built from its Go module the
 * first time. Throws NodeError without a Go toolchain.
 */
export function obtainVpa(progress: Progress): Promise<Part> {
  const what = `the updater of the Vertical Pod Autoscaler ${vpaVersion}`;
  return obtainBuilt({ name: 'vpa', modules: vpaModules, what, time: 'one to five minutes' }, progress);
}

interface Built {
  readonly name: string;
  readonly modules: readonly GoModule[];
  /** The programs, for progress and errors. */
  readonly what: string;
  /** How long a build takes, for progress. */
  readonly time: string;
}

async function obtainBuilt({ name, modules: from, what, time }: Built, progress: Progress): Promise<Part> {
  const cache = cacheRoot();
  // Without the names of fields: renaming one is no reason for another build of minutes.
  const key = JSON.stringify(from.map((module) => Object.values(module) as unknown[]));
  const recipe: Pick<Recipe, 'name' | 'key'> = { name, key };
  const built = await present(cache, recipe);
  if (built) return built;
  const toolchain = await goToolchain();
  if (toolchain === undefined) throw new NodeError(`building ${what} needs a Go toolchain (command "go")`);
  const make = async (folder: string): Promise<Record<string, string>> => {
    const versions: Record<string, string> = {};
    for (const module of from) Object.assign(versions, await buildingPrograms(module, folder, toolchain));
    return versions;
  };
  const building = `building ${what} with ${toolchain} (${time})`;
  return obtain(cache, { ...recipe, make: (folder) => timed(progress, building, () => make(folder)) }, progress);
}
