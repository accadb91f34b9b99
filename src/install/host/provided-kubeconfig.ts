import type { Change } from './change.ts';
import { readSaved, removing, writing } from './files.ts';

/** The kubeconfig of the shim that the DaemonSet provides. */
export interface ProvidedKubeconfig {
  /** `/var/lib/cri-resize-shim-installer/kubeconfig` */
  readonly path: string;
  /** The new content. Undefined: the file does not change, or is removed if no configuration uses it. */
  readonly text?: string;
  /** Whether the configuration that is to be installed names the file. */
  readonly isUsed: boolean;
}

export const PROVIDED_KUBECONFIG = '/var/lib/cri-resize-shim-installer/kubeconfig';

/** The changes of an installation: before the shim starts with its configuration, and after that. */
export interface KubeconfigChanges {
  readonly before: readonly Change[];
  readonly after: readonly Change[];
}

/**
 * Plans the kubeconfig for an installation. The running shim reads the file for each request, so a new token needs no
 * restart. A file that a given configuration no longer names is removed once the shim runs without it. Changes nothing.
 */
export async function planKubeconfig(
  { path, text, isUsed }: ProvidedKubeconfig,
  isConfigGiven: boolean,
): Promise<KubeconfigChanges> {
  const there = await readSaved(path);
  if (text !== undefined) {
    const isSame = there?.content.toString('utf8') === text;
    return { before: isSame ? [] : [writing(path, text, { mode: 0o600 })], after: [] };
  }
  const isLeft = there !== undefined && isConfigGiven && !isUsed;
  return { before: [], after: isLeft ? [removing(path)] : [] };
}

/** Plans the removal of the kubeconfig: its token is for the shim alone. Changes nothing. */
export const removingKubeconfig = async ({ path }: ProvidedKubeconfig): Promise<readonly Change[]> =>
  (await readSaved(path)) === undefined ? [] : [removing(path)];
