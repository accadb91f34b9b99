import { chmod, copyFile, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OWN_NODE, copyProgram } from '../node/index.ts';
import { provideKubeconfig, withNodeName } from './provide/kubeconfig.ts';

export interface StagingPlaces {
  /** The program in the image. */
  readonly from: string;
  /** A folder of the host, mounted at the same path. */
  readonly staging: string;
  /** Path of the configuration in the container; undefined: the node keeps its own. */
  readonly config: string | undefined;
  readonly nodeName: string;
  /** Folder with the token and the certificate for the shim's kubeconfig; empty: none. */
  readonly credentials: string;
}

export const programIn = (staging: string): string => join(staging, 'program');
export const kubeconfigIn = (staging: string): string => join(staging, 'kubeconfig');
export const configIn = (staging: string): string => join(staging, 'config.yaml');

/** Copies the program to the host atomically, with the Node of the image: the host may have none. */
export async function stage({ from, staging, config, nodeName, credentials }: StagingPlaces): Promise<void> {
  const to = programIn(staging);
  const fresh = `${to}.new`;
  await unstage(staging);
  const program = { kind: 'folder', folder: from, node: process.execPath, arch: process.arch } as const;
  await copyProgram({ program, to: fresh });
  const node = join(fresh, OWN_NODE);
  await mkdir(dirname(node), { recursive: true });
  await copyFile(process.execPath, node);
  await chmod(node, 0o755);
  if (config !== undefined) {
    const text = await readFile(config, 'utf8');
    await writeFile(configIn(staging), credentials === '' ? text : withNodeName(text, nodeName));
  }
  await provideKubeconfig(credentials, kubeconfigIn(staging));
  await rename(fresh, to);
}

/** All files and folders that {@link stage} may create. */
export const stagedIn = (staging: string): readonly string[] => {
  const to = programIn(staging);
  return [to, `${to}.new`, configIn(staging)];
};

/** All that an uninstallation removes: the kubeconfig is used by the shim as long as it is installed. */
export const providedIn = (staging: string): readonly string[] => [...stagedIn(staging), kubeconfigIn(staging)];

/** Removes the staged files. */
export async function unstage(staging: string): Promise<void> {
  for (const path of stagedIn(staging)) await rm(path, { recursive: true, force: true });
}
