import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { NodeError } from './errors.ts';

/** Returns the checkout. Searches the parent folders, because this module also runs bundled, from another folder. */
export function packageRoot(): string {
  const start = dirname(fileURLToPath(import.meta.url));
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder;
    if (folder === dirname(folder)) throw new NodeError(`no package.json in ${start} or any folder above it`);
  }
}

/** Returns the folder in which unpacked packages are cached between runs. */
export function cacheRoot(env: NodeJS.ProcessEnv = process.env): string {
  if (env['CRI_RESIZE_SHIM_CACHE']) return env['CRI_RESIZE_SHIM_CACHE'];
  return join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'cri-resize-shim');
}
