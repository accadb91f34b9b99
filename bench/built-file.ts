import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A file of dist/. */
export function builtFile(name: string): string {
  return repositoryFile(join('dist', name), 'npm run build');
}

/** Returns a file of the repository, from any bundle. */
export function repositoryFile(name: string, remedy = 'it belongs to the repository'): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const file = join(folder, name);
    if (existsSync(file)) return file;
    if (folder === dirname(folder)) throw new Error(`${name} is missing: ${remedy}`);
  }
}
