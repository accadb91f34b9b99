import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * The text of a file under proto/, which lies beside package.json, wherever this code was bundled to.
 * @param name `runtime/v1/cri.proto`
 */
export function readProto(name: string): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const file = join(folder, 'proto', name);
    if (existsSync(file)) return readFileSync(file, 'utf8');
    if (folder === dirname(folder)) throw new Error(`proto/${name} is missing from the installation`);
  }
}
