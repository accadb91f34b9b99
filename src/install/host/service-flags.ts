import { readFile } from 'node:fs/promises';
import { errnoOf } from '../../core/errors/index.ts';

/**
 * Returns the flags of the service, from its environment file: CRI_RESIZE_SHIM_FLAGS, split at blanks as systemd does.
 * Returns none if there is no such file. Rejects if it cannot be read.
 */
export async function serviceFlags(flagsFile: string): Promise<readonly string[]> {
  try {
    return flagsIn(await readFile(flagsFile, 'utf8'));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

/** Reads the last CRI_RESIZE_SHIM_FLAGS of an environment file (systemd.exec(5), EnvironmentFile=). */
export function flagsIn(text: string): readonly string[] {
  const values = [...text.replaceAll('\\\n', ' ').matchAll(/^[ \t]*CRI_RESIZE_SHIM_FLAGS[ \t]*=[ \t]*(.*?)[ \t]*$/gm)];
  const value = values.at(-1)?.[1] ?? '';
  const [, , inside = value] = /^(["'])(.*)\1$/.exec(value) ?? [];
  return inside.split(/\s+/).filter((word) => word !== '');
}
