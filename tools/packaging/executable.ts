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

/** Increase this number when the code builds a different result from the same inputs. */
const REVISION = 3;

/**
 * Builds the single executable: Node's own file with both programs and all their files inside, and its bill of
 * materials `<target>.cdx.json`. Existing files that were built from the same inputs stay, because building takes
 * seconds. Returns both files, or undefined if no Node is known for the architecture.
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
    integrity: node.integrity,
    revision: REVISION,
    compilesAhead: compilesAhead(),
    names: Object.keys(assets),
  });
  const [sbom, stamp] = [`${target}.cdx.json`, `${target}.stamp`];
  const isThere = [target, sbom, stamp].every((file) => existsSync(file));
  if (!isThere || readFileSync(stamp, 'utf8') !== stampOf(print, target)) {
    rmSync(stamp, { force: true });
    await timed(progress, 'the single executable', () => putTogether({ node, main, assets, target }));
    await timed(progress, 'its bill of materials', () => writeSbomWithNode(facts, node, sbom));
    writeFileSync(stamp, stampOf(print, target));
  }
  return [target, sbom];
}

const stampOf = (print: string, target: string): string => `${print} ${statSync(target).size}\n`;

/** Whether to compile in advance, to serve earlier. V8's code cache differs per build, so a release has none. */
const compilesAhead = (): boolean => process.env['SOURCE_DATE_EPOCH'] === undefined;

interface Ingredients {
  readonly node: NodeBinary;
  /** The script that the executable runs. */
  readonly main: string;
  readonly assets: Readonly<Record<string, string>>;
  readonly target: string;
}

async function putTogether({ node, main, assets: own, target }: Ingredients): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'executable-'));
  // Moved into place as a whole: a process that runs the existing file is not affected.
  const draft = `${target}.${process.pid}`;
  try {
    const config = join(folder, 'sea.json');
    const assets = { ...own, 'node/LICENSE': node.license };
    const settings = {
      main,
      output: draft,
      assets,
      useCodeCache: compilesAhead(),
      disableExperimentalSEAWarning: true,
    };
    writeFileSync(config, JSON.stringify(settings));
    // Injects them into a copy of the Node that runs this command.
    await execa(node.program, ['--build-sea', config]);
    renameSync(draft, target);
  } finally {
    rmSync(draft, { force: true });
    await rm(folder, { recursive: true });
  }
}

/** Returns the files by the names that src/core/shipped-files.ts uses. */
async function assetsOf({ root, arch }: Facts): Promise<Readonly<Record<string, string>>> {
  const assets: Record<string, string> = {
    // The build for glibc, which Node itself uses.
    'koffi.node': join(root, `node_modules/@koromix/koffi-linux-${arch}/linux_${arch}/koffi.node`),
    'kubernetes-client.cjs': join(root, 'dist/kubernetes-client.cjs'),
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
