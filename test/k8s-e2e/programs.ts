import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';
import { type KubernetesRelease, kubeletVersion, kubernetesModule } from '../real-kubelet/programs.ts';
import { obtainBuilt } from '../support/node/parts/built-programs.ts';
import type { GoModule } from '../support/node/parts/go-module.ts';

/** The release whose tests run. Each release of Kubernetes has its own tests, for its own kubelet. */
export const release: KubernetesRelease = '1.36';

/** The version that Kubernetes requires: the command line and the suite must be of one version. */
const ginkgo: GoModule = {
  path: 'github.com/onsi/ginkgo/v2',
  version: 'v2.28.1',
  linking: '',
  programs: { ginkgo: './ginkgo' },
};

/**
 * The specs (e2e.test), the program of their images (agnhost), what runs them in parallel (ginkgo), and the parts of a
 * cluster that they need in addition to API server and kubelet. Built from Go modules the first time. Throws GoMissing
 * without a Go toolchain.
 * @returns the folder with the programs
 */
export async function obtainE2e(progress: Progress): Promise<string> {
  const kubernetes = kubernetesModule(release);
  const specs: GoModule = {
    ...kubernetes,
    programs: {
      agnhost: './test/images/agnhost',
      'kube-scheduler': './cmd/kube-scheduler',
      'kube-controller-manager': './cmd/kube-controller-manager',
    },
    ownTestPrograms: { 'e2e.test': await readFile(join(packageRoot(), 'test/k8s-e2e/suite/e2e_test.go'), 'utf8') },
  };
  const what = `the node tests of Kubernetes ${kubeletVersion(release)}`;
  const part = await obtainBuilt(
    { name: 'kubernetes-e2e', modules: [specs, ginkgo], what, time: 'five to twenty minutes' },
    progress,
  );
  return join(part.folder, 'bin');
}
