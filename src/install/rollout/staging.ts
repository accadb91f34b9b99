import { chmod, copyFile, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OWN_NODE } from '../host/programs.ts';
import { provideKubeconfig, withNodeName } from '../host/provided-kubeconfig.ts';
import { copyProgram } from '../node/program.ts';

export interface StagingPlaces {
  /** The program in the image. */
  readonly from: string;
  /** The folder of this pod: {@link stagingOf}. */
  readonly own: string;
  /** Path of the configuration in the container; undefined: the node keeps its own. */
  readonly config: string | undefined;
  readonly nodeName: string;
  /** Folder with the token and the certificate for the shim's kubeconfig; empty: none. */
  readonly credentials: string;
}

const FOLDER = /^pod-(\d+)$/;

/**
 * Returns the folder of a pod, by the ID of its process, which is one of the host (hostPID): a pod that was deleted by
 * force may end after its successor has staged the program.
 */
export const stagingOf = (staging: string, pid: number): string => join(staging, `pod-${pid}`);

/** Returns the folder of the staged program. @param own the folder of the pod */
export const programIn = (own: string): string => join(own, 'program');
/** Returns the staged kubeconfig, which `resizectl install` copies to the shim's path. */
export const kubeconfigIn = (own: string): string => join(own, 'kubeconfig.new');
/** Returns the path of the staged configuration. */
export const configIn = (own: string): string => join(own, 'config.yaml');

/**
 * Copies the program to the host atomically, including the image's Node, because the host may have none. Does not
 * change the files of the installed shim or those that another pod has staged. Does nothing if it is there.
 */
export async function stage({ from, own, config, nodeName, credentials }: StagingPlaces): Promise<void> {
  const to = programIn(own);
  if (await exists(to)) return;
  const fresh = `${to}.new`;
  await rm(own, { recursive: true, force: true });
  await mkdir(own, { recursive: true, mode: 0o755 });
  const program = { kind: 'folder', folder: from, node: process.execPath, arch: process.arch } as const;
  await copyProgram({ program, to: fresh });
  const node = join(fresh, OWN_NODE);
  await mkdir(dirname(node), { recursive: true });
  await copyFile(process.execPath, node);
  await chmod(node, 0o755);
  if (config !== undefined) {
    const text = await readFile(config, 'utf8');
    await writeFile(configIn(own), credentials === '' ? text : withNodeName(text, nodeName));
  }
  if (credentials !== '') await provideKubeconfig(credentials, kubeconfigIn(own));
  await rename(fresh, to);
}

/**
 * Removes what this pod has staged. With `all`, also what pods have left that have ended, for example by SIGKILL: no
 * resizectl may run on the host then.
 */
export async function unstage(staging: string, own: string, all: boolean): Promise<void> {
  for (const name of await readdir(staging)) {
    const [, pid] = FOLDER.exec(name) ?? [];
    const folder = join(staging, name);
    // If the ID was reused, the folder stays until the new process has ended.
    if (pid === undefined || (folder !== own && (!all || (await exists(`/proc/${pid}`))))) continue;
    await rm(folder, { recursive: true, force: true });
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );
