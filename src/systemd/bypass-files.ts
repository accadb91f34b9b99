import { readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { messageOf } from '../core/errors/index.ts';
import { syncFile, syncFolder } from '../core/files/index.ts';
import type { Log } from '../observe/index.ts';

/** Files through which the shim and its bypass know about each other. Undefined where nobody has set them. */
export interface BypassFiles {
  /** The shim writes containerd's socket to it, as an assignment of sh(1). */
  readonly target: string | undefined;
  /** Properties of the bypass, as `systemctl show` prints them, from the entry point of the image. */
  readonly state: string | undefined;
}

/** Reads and removes the variables from the environment, because they are not for child processes. */
export function takeBypassFiles(env: NodeJS.ProcessEnv): BypassFiles {
  const { CRI_RESIZE_SHIM_BYPASS_FILE: target, CRI_RESIZE_SHIM_BYPASS_STATE: state } = env;
  for (const name of ['CRI_RESIZE_SHIM_BYPASS_FILE', 'CRI_RESIZE_SHIM_BYPASS_STATE']) Reflect.deleteProperty(env, name);
  return { target, state };
}

/**
 * Returns the socket of containerd that the shim has used last, from the file of {@link writeBypassTarget}. Undefined if the shim has never
 * started.
 */
export async function bypassTarget(file: string): Promise<string | undefined> {
  const text = await readFile(file, 'utf8').catch(() => '');
  const target = /^CRI_RESIZE_SHIM_BYPASS_TO="(.+)"\n/m.exec(text)?.[1]?.replaceAll(/\\(["\\`$])/g, '$1');
  return target?.startsWith('/') === true ? target : undefined;
}

/** Returns the {@link bypassTarget} of this service. Does not change the environment. */
export async function lastBypassTarget(env: NodeJS.ProcessEnv): Promise<string | undefined> {
  const { CRI_RESIZE_SHIM_BYPASS_FILE: file } = env;
  return file === undefined ? undefined : bypassTarget(file);
}

/**
 * Writes the socket to which the bypass leads if the shim fails after this start: the one that the shim uses. Never
 * rejects: a bypass to the socket of an earlier start is better than no shim.
 */
export async function writeBypassTarget(file: string | undefined, containerd: string, log: Log): Promise<void> {
  if (file === undefined) return;
  // The bypass reads it with read of sh(1), which takes a backslash away. In double quotes, systemd and a shell do the same.
  const text = `CRI_RESIZE_SHIM_BYPASS_TO="${containerd.replaceAll(/["\\`$]/g, '\\$&')}"\n`;
  try {
    if ((await readFile(file, 'utf8').catch(() => undefined)) === text) return;
    await writeFile(`${file}.new`, text, { mode: 0o600 });
    await syncFile(`${file}.new`);
    await rename(`${file}.new`, file);
    await syncFolder(dirname(file));
  } catch (error) {
    log.warn({ file, error: messageOf(error) }, 'socket of containerd not written for the bypass');
  }
}
