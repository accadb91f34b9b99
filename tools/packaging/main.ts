import { cpSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Command, Option } from 'commander';
import { timed } from '../download/progress.ts';
import { makeDeb } from './deb.ts';
import { makeExecutable } from './executable.ts';
import { factsOf } from './facts.ts';
import { pinnedNode } from './node-binary.ts';
import { writeProvenance } from './provenance.ts';
import { writeFolderSbom, writeSbomWithNode } from './sbom.ts';
import { makeTree } from './tree.ts';

/**
 * npm run package: builds what is installed on a node, for this machine's architecture: a folder with everything except
 * Node, a .deb of it, a single executable with Node inside, their bills of materials (CycloneDX) and their provenance.
 */
const { to, only } = new Command('package')
  .description(
    'Builds what is installed on a node: a folder, a .deb, a single executable, and their bills of materials.',
  )
  .option('--to <folder>', 'target folder (default: dist/packages), or the folder itself with --only tree or image')
  .addOption(
    new Option('--only <kind>', 'build only this, with its bill of materials').choices([
      'tree',
      'deb',
      'executable',
      'image',
    ]),
  )
  .parse()
  .opts<{ readonly to?: string; readonly only?: 'tree' | 'deb' | 'executable' | 'image' }>();
const facts = factsOf();
const name = `${facts.name}-${facts.version}-linux-${facts.arch}`;
const progress = (line: string): void => void process.stderr.write(`package: ${line}\n`);
// All users may read the files of a package, regardless of the umask of the build.
process.umask(0o022);

const executable = `${name}-executable`;

switch (only) {
  case undefined: {
    const target = targetFolder();
    // The executable is built again only if it is outdated.
    for (const old of readdirSync(target))
      if (!old.startsWith(executable)) rmSync(join(target, old), { recursive: true, force: true });
    const made = [...(await packFolder(target)), ...(await packExecutable(target))];
    const provenance = join(target, `${name}.provenance.json`);
    const files = made.filter((file) => statSync(file).isFile());
    await writeProvenance(facts, { files, node: pinnedNode(facts.root, facts.arch), target: provenance });
    for (const file of [...made, provenance]) process.stdout.write(`${file}\n`);
    break;
  }
  case 'deb':
    for (const file of await packFolder(targetFolder())) process.stdout.write(`${file}\n`);
    break;
  case 'executable':
    for (const file of await packExecutable(targetFolder())) process.stdout.write(`${file}\n`);
    break;
  case 'image':
    await packImage(to === undefined ? join(targetFolder(), `${name}-image`) : resolve(to));
    break;
  case 'tree':
    await makeTree(facts, to === undefined ? join(targetFolder(), name) : resolve(to));
    break;
}

function targetFolder(): string {
  const target = resolve(to ?? join(facts.root, 'dist/packages'));
  mkdirSync(target, { recursive: true });
  return target;
}

async function packFolder(target: string): Promise<readonly string[]> {
  const tree = join(target, name);
  await makeTree(facts, tree);
  const sbom = join(target, `${name}.cdx.json`);
  await timed(progress, 'the bill of materials of the folder', () => writeFolderSbom(facts, sbom));
  const node = pinnedNode(facts.root, facts.arch);
  if (node === undefined) {
    progress(`no .deb: npm has no Node for ${facts.arch}`);
    return [tree, sbom];
  }
  const debSbom = join(target, `${name}-deb.cdx.json`);
  await timed(progress, 'the bill of materials of the .deb', () => writeSbomWithNode(facts, node, debSbom));
  const deb = await timed(progress, 'the .deb', () => makeDeb(facts, { tree, node, sbom: debSbom, target }));
  return [tree, sbom, deb, debSbom];
}

/** Creates what the Dockerfile copies into the image: the folder, Node, and the bill of materials of both. */
async function packImage(target: string): Promise<void> {
  await makeTree(facts, join(target, 'program'));
  const node = pinnedNode(facts.root, facts.arch);
  if (node === undefined) throw new Error(`no image: npm has no Node for ${facts.arch}`);
  cpSync(node.program, join(target, 'node'));
  await writeSbomWithNode(facts, node, join(target, 'sbom.cdx.json'));
}

async function packExecutable(target: string): Promise<readonly string[]> {
  const made = await makeExecutable(facts, join(target, executable), progress);
  if (made === undefined) progress(`no single executable: npm has no Node for ${facts.arch}`);
  return made ?? [];
}
