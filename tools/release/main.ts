import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Command } from 'commander';
import { execa } from 'execa';
import { timed } from '../download/progress.ts';
import { factsOf } from '../packaging/facts.ts';
import { findBuilder } from '../packaging/image-builder.ts';
import { pinnedNode } from '../packaging/node-binary.ts';
import { writeProvenance } from '../packaging/provenance.ts';
import { packFolder } from './archive.ts';
import { epochOf, problemsOf } from './checks.ts';
import { signFile } from './signature.ts';
import { differing, sumsOf } from './sums.ts';

/**
 * npm run release: everything that is published for a version, in one folder: packages, archives of the folder, the
 * chart and the image, bills of materials, provenance, checksums, and their signature if a key is given.
 */
interface Options {
  readonly to?: string;
  readonly key?: string;
  readonly draft: boolean;
  readonly verify: boolean;
  readonly image: boolean;
}

const options = new Command('release')
  .description('Makes everything that is published for the version in package.json (docs/release.md).')
  .option('--to <FOLDER>', 'Target folder, which is emptied (default: dist/release).')
  .option('--key <FILE>', 'Private key in PEM (Ed25519, EC or RSA) that signs the checksums.')
  .option('--draft', 'Make it although the checkout is not ready for a release; the reasons are printed.', false)
  .option('--verify', 'Make it twice, and fail if a file differs.', false)
  .option('--no-image', 'Make no archive of the image.')
  .parse()
  .opts<Options>();
const facts = factsOf();
const name = `${facts.name}-${facts.version}-linux-${facts.arch}`;
const progress = (line: string): void => void process.stderr.write(`release: ${line}\n`);
process.umask(0o022);
process.exitCode = await main();

async function main(): Promise<number> {
  const problems = await problemsOf(facts.root, facts.version);
  for (const problem of problems) progress(`NOT READY: ${problem}`);
  if (problems.length > 0 && !options.draft) return 1;
  const target = resolve(options.to ?? join(facts.root, 'dist/release'));
  const epoch = await epochOf(facts.root);
  const sums = await build(target, epoch);
  if (options.verify) {
    const second = await build(`${target}-again`, epoch);
    const others = differing(sums, second);
    for (const file of others) progress(`NOT REPRODUCIBLE: ${file}`);
    if (others.length > 0) return 1;
    rmSync(`${target}-again`, { recursive: true });
    progress(`reproducible: two builds of ${sums.split('\n').length - 1} files have the same bytes`);
  }
  const image = await packImage(target, epoch);
  await finish(target, image);
  for (const file of readdirSync(target).toSorted()) process.stdout.write(`${join(target, file)}\n`);
  return 0;
}

/** Makes all files but the image, and returns their checksums. */
async function build(target: string, epoch: string): Promise<string> {
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  // dpkg-deb and the bills of materials take their time from it.
  const env = { SOURCE_DATE_EPOCH: epoch };
  const packages = join(facts.root, 'dist/tools/package.js');
  await timed(progress, 'the packages', () =>
    execa(process.execPath, [packages, '--to', target], { env, stdout: 'ignore', stderr: 'inherit' }),
  );
  await packFolder(join(target, name), join(target, `${name}.tar.gz`), epoch);
  rmSync(join(target, name), { recursive: true });
  // The stamp is only needed for the next build of the same folder.
  rmSync(join(target, `${name}-executable.stamp`), { force: true });
  const chart = join(facts.root, 'deploy/helm', facts.name);
  await packFolder(chart, join(target, `${facts.name}-chart-${facts.version}.tgz`), epoch);
  // The provenance is written at the end, for all files.
  rmSync(join(target, `${name}.provenance.json`), { force: true });
  return sumsOf(filesIn(target));
}

function filesIn(folder: string): string[] {
  return readdirSync(folder)
    .map((file) => join(folder, file))
    .filter((file) => statSync(file).isFile());
}

/** Builds the image and writes its archive. Without a builder, says so: the image is then made elsewhere. */
async function packImage(target: string, epoch: string): Promise<string | undefined> {
  if (!options.image) return undefined;
  const builder = await findBuilder().catch((error: unknown) => {
    progress(`NO IMAGE: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  });
  if (builder === undefined) return undefined;
  const tag = `${facts.name}:${facts.version}`;
  const file = join(target, `${name}-image.tar`);
  const run = (args: readonly string[]): Promise<unknown> =>
    execa(builder.program, args, {
      cwd: facts.root,
      env: { SOURCE_DATE_EPOCH: epoch },
      stdout: 'ignore',
      stderr: 'inherit',
    });
  await timed(progress, `the image, by ${builder.program}`, () => run(builder.build(tag, [])));
  await run(builder.save(tag, file));
  return file;
}

/** Writes provenance and checksums of all files, and signs the checksums. */
async function finish(target: string, image: string | undefined): Promise<void> {
  const files = filesIn(target);
  const provenance = join(target, `${facts.name}-${facts.version}.provenance.json`);
  await writeProvenance(facts, { files, node: pinnedNode(facts.root, facts.arch), target: provenance });
  const sums = join(target, 'SHA256SUMS');
  writeFileSync(sums, await sumsOf([...files, provenance]));
  if (image !== undefined && options.verify) progress('the image was not built twice: its base has times of its own');
  if (options.key === undefined) progress('NOT SIGNED: no key is given (--key FILE)');
  else for (const file of signFile(sums, options.key)) progress(`signed: ${file}`);
}
