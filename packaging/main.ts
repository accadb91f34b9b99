import { mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { makeDeb } from './deb.ts';
import { factsOf } from './facts.ts';
import { writeSbom } from './sbom.ts';
import { makeTree } from './tree.ts';

/**
 * npm run package: what is installed on a node, for this machine's architecture, in dist/packages: a folder with all that the
 * program needs but Node, a .deb of it, and what it is made of (CycloneDX). `--to FOLDER` puts them elsewhere; `--only tree` makes
 * the folder alone, under the given name.
 */
const { values } = parseArgs({ options: { to: { type: 'string' }, only: { type: 'string' } } });
const facts = factsOf();
// Whoever makes a package: everybody may read what is in it.
process.umask(0o022);

if (values.only !== undefined) {
  if (values.only !== 'tree' || values.to === undefined) throw new Error('--only tree --to FOLDER');
  await makeTree(facts, resolve(values.to));
} else {
  const target = resolve(values.to ?? join(facts.root, 'dist/packages'));
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  const name = `${facts.name}-${facts.version}-linux-${facts.arch}`;
  const tree = join(target, name);
  await makeTree(facts, tree);
  const sbom = join(target, `${name}.cdx.json`);
  await writeSbom(facts, sbom);
  const deb = await makeDeb(facts, { tree, sbom, target });
  for (const made of [tree, deb, sbom]) process.stdout.write(`${made}\n`);
}
