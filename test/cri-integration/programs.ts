import { join } from 'node:path';
import type { Progress } from '../../tools/download/progress.ts';
import { builtVersions, containerdPath } from '../support/node/parts/built-containerd.ts';
import { obtainBuilt } from '../support/node/parts/built-programs.ts';

/** The releases of containerd whose tests run, each against its own tests. */
export const releases = ['2.3', '2.4'] as const;
export type Release = (typeof releases)[number];

export const suiteName = 'cri-integration.test';

/** Programs that fail on demand: a shim of containerd, a network plugin and an OCI runtime. */
const failpoints = ['containerd-shim-runc-fp-v1', 'cni-bridge-fp', 'runc-fp', 'loopback-v2'];

/**
 * containerd's own tests of its CRI server, and what they need to make pods fail. Built from its Go module the first
 * time. Throws GoMissing without a Go toolchain.
 * @returns the folder with the programs
 */
export async function obtainSuite(release: Release, progress: Progress): Promise<string> {
  const version = builtVersions[release];
  const module = {
    path: containerdPath,
    version: `v${version}`,
    linking: '',
    programs: Object.fromEntries(failpoints.map((name) => [name, `./integration/failpoint/cmd/${name}`])),
    testPrograms: { [suiteName]: './integration' },
  };
  const what = `the CRI tests of containerd ${version}`;
  const part = await obtainBuilt(
    { name: `cri-integration-${release}`, modules: [module], what, time: 'one to five minutes' },
    progress,
  );
  return join(part.folder, 'bin');
}
