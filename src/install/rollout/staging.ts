import { chmod, copyFile, mkdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OWN_NODE, copyProgram } from '../node/index.ts';

export interface StagingPlaces {
  /** The program in the image. */
  readonly from: string;
  /** A folder of the host, mounted at the same path. */
  readonly staging: string;
  /** Path of the configuration in the container; undefined: the node keeps its own. */
  readonly config: string | undefined;
}

export const programIn = (staging: string): string => join(staging, 'program');
export const configIn = (staging: string): string => join(staging, 'config.yaml');

/** Copies the program to the host atomically, with the Node of the image: the host may have none. */
export async function stage({ from, staging, config }: StagingPlaces): Promise<void> {
  const to = programIn(staging);
  const fresh = `${to}.new`;
  await unstage(staging);
  const program = { kind: 'folder', folder: from, node: process.execPath, arch: process.arch } as const;
  await copyProgram({ program, to: fresh });
  const node = join(fresh, OWN_NODE);
  await mkdir(dirname(node), { recursive: true });
  await copyFile(process.execPath, node);
  await chmod(node, 0o755);
  if (config !== undefined) await copyFile(config, configIn(staging));
  await rename(fresh, to);
}

/** All files and folders that {@link stage} may create. */
export const stagedIn = (staging: string): readonly string[] => {
  const to = programIn(staging);
  return [to, `${to}.new`, configIn(staging)];
};

/** Removes the staged files. */
export async function unstage(staging: string): Promise<void> {
  for (const path of stagedIn(staging)) await rm(path, { recursive: true, force: true });
}
