import { realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/** The path in a socket address, with or without `unix://`. */
export const socketPathOf = (endpoint: string): string => endpoint.replace(/^unix:(\/\/)?/, '');

/**
 * Whether two endpoints, with or without `unix://`, name the same socket. Folders may be symbolic links: /var/run is one. What does not
 * exist, or is hidden, counts by its name.
 */
export async function isSameSocket(one: string, other: string): Promise<boolean> {
  const [path, otherPath] = [socketPathOf(one), socketPathOf(other)];
  return path === otherPath || (await realPathOf(path)) === (await realPathOf(otherPath));
}

async function realPathOf(path: string): Promise<string> {
  const folder = dirname(path);
  if (!path.startsWith('/') || folder === path) return path;
  return realpath(path).catch(async () => join(await realPathOf(folder), basename(path)));
}
