import { join } from 'node:path';
import { type PackagedPart, keep, obtainPackaged, of } from '../support/node/parts/packaged.ts';
import { cacheRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';

/** Debian's kubectl with kustomize. It is old (1.20), so newer ones render the same files. Links to no library. */
const kubectlPart: PackagedPart = {
  name: 'kubectl',
  packages: [...of('bookworm', 'kubernetes-client')],
  revision: 1,
  arrange: (unpacked, folder) => keep(unpacked, ['usr/bin/kubectl'], join(folder, 'bin')),
};

/** Returns the path of the program, in the cache of the test node's parts. */
export async function prepareKubectl(progress: Progress): Promise<string> {
  const [{ folder }] = await obtainPackaged(cacheRoot(), [kubectlPart], progress);
  return join(folder, 'bin/kubectl');
}
