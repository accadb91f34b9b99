import { createHash } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { type Progress, timed } from '../download/progress.ts';
import type { Facts } from './facts.ts';
import { type NodeBinary, pinnedNode } from './node-binary.ts';
import { writeSbomWithNode } from './sbom.ts';

/** Raised when what is here makes something else of the same. */
const REVISION = 2;

/**
 * Makes the single executable: Node's own file with both programs and all that they read put into it; and the list of what it is made
 * of, `<target>.cdx.json`. Those that are there, made of the same, stay: making them takes seconds. Gives both files; undefined where no
 * Node is known for the architecture.
 */
export async function makeExecutable(
  facts: Facts,
  target: string,
  progress: Progress,
): Promise<readonly string[] | undefined> {
  const node = pinnedNode(facts.root, facts.arch);
  if (node === undefined) return undefined;
  const main = join(facts.root, 'dist/executable.cjs');
  const assets = await assetsOf(facts);
  const print = fingerprint([main, join(facts.root, 'package-lock.json'), ...Object.values(assets)], {
    ...{ integrity: node.integrity, revision: REVISION, names: Object.keys(assets) },
  });
  const [sbom, stamp] = [`${target}.cdx.json`, `${target}.stamp`];
  const isThere = [target, sbom, stamp].every((file) => existsSync(file));
  if (!isThere || readFileSync(stamp, 'utf8') !== stampOf(print, target)) {
    rmSync(stamp, { force: true });
    await timed(progress, 'the single executable', () => putTogether({ node, main, assets, target }));
    await timed(progress, 'what it is made of', () => writeSbomWithNode(facts, node, sbom));
    writeFileSync(stamp, stampOf(print, target));
  }
  return [target, sbom];
}

const stampOf = (print: string, target: string): string => `${print} ${statSync(target).size}\n`;

interface Ingredients {
  readonly node: NodeBinary;
  /** The script that it runs. */
  readonly main: string;
  readonly assets: Readonly<Record<string, string>>;
  readonly target: string;
}

async function putTogether({ node, main, assets: own, target }: Ingredients): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'executable-'));
  // Moved there whole: whoever runs the one that is there goes on with it.
  const draft = `${target}.${process.pid}`;
  try {
    const config = join(folder, 'sea.json');
    const assets = { ...own, 'node/LICENSE': node.license };
    // Compiled beforehand it serves earlier.
    const settings = { main, output: draft, assets, useCodeCache: true, disableExperimentalSEAWarning: true };
    writeFileSync(config, JSON.stringify(settings));
    // Puts them into a copy of the Node that runs this command.
    await execa(node.program, ['--build-sea', config]);
    renameSync(draft, target);
  } finally {
    rmSync(draft, { force: true });
    await rm(folder, { recursive: true });
  }
}

/** By the names that src/shipped has for them. */
async function assetsOf({ root, arch }: Facts): Promise<Readonly<Record<string, string>>> {
  const assets: Record<string, string> = {
    // The one for glibc, as Node itself is.
    'koffi.node': join(root, `node_modules/@koromix/koffi-linux-${arch}/linux_${arch}/koffi.node`),
    LICENSE: join(root, 'LICENSE'),
  };
  for (const folder of ['proto', 'systemd'])
    for (const entry of await readdir(join(root, folder), { recursive: true, withFileTypes: true })) {
      const file = join(entry.parentPath, entry.name);
      if (entry.isFile()) assets[file.slice(root.length).replace(/^\//, '')] = file;
    }
  return assets;
}

function fingerprint(files: readonly string[], besides: object): string {
  const hash = createHash('sha256').update(JSON.stringify(besides));
  for (const file of files) hash.update(readFileSync(file));
  return hash.digest('hex');
}
