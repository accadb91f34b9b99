import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The metadata of packages. */
export interface Facts {
  readonly root: string;
  readonly name: string;
  readonly version: string;
  readonly description: string;
  /** Node's name for it: x64. */
  readonly arch: string;
}

interface PackageJson {
  readonly name: string;
  readonly version: string;
  readonly description: string;
}

export function factsOf(): Facts {
  // This code only runs bundled, in dist/tools.
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const { name, version, description } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as PackageJson;
  return { root, name, version, description, arch: process.arch };
}
