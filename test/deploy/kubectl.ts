import { join } from 'node:path';
import { type PackagedPart, keep, obtainPackaged, of } from '../support/node/packaged.ts';
import { cacheRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';

/** Debian's kubectl, which has kustomize in it: an old one (1.20), so what it renders every other one does too. It links to nothing. */
const kubectlPart: PackagedPart = {
  name: 'kubectl',
  packages: [...of('bookworm', 'kubernetes-client')],
  revision: 1,
  arrange: (unpacked, folder) => keep(unpacked, ['usr/bin/kubectl'], join(folder, 'bin')),
};

/** The program's path; from the cache of the test node's parts, made the first time. */
export async function prepareKubectl(progress: Progress): Promise<string> {
  const [{ folder }] = await obtainPackaged(cacheRoot(), [kubectlPart], progress);
  return join(folder, 'bin/kubectl');
}
