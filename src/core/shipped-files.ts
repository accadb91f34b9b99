import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import { fileURLToPath } from 'node:url';

/**
 * Returns the text of a file that ships with the program: an asset of the single executable, or a file in the
 * installation folder, found from the location of the bundled code upwards.
 * @param path relative to the installation folder, such as `proto/runtime/v1/cri.proto`
 */
export function readShipped(path: string): string {
  if (isSea()) return getAsset(path, 'utf8');
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const file = join(folder, path);
    if (existsSync(file)) return readFileSync(file, 'utf8');
    if (folder === dirname(folder)) throw new Error(`${path} is missing from the installation`);
  }
}
