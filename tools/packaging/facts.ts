import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What packages say of themselves. */
export interface Facts {
  readonly root: string;
  readonly name: string;
  readonly version: string;
  readonly description: string;
  /** As Node names it: x64. */
  readonly arch: string;
}

interface PackageJson {
  readonly name: string;
  readonly version: string;
  readonly description: string;
}

export function factsOf(): Facts {
  // Bundled, in dist/tools: the only way in which this runs.
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const { name, version, description } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as PackageJson;
  return { root, name, version, description, arch: process.arch };
}
