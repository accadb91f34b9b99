import { createHash } from 'node:crypto';
import { createReadStream, existsSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { execa } from 'execa';
import type { Facts } from './facts.ts';
import type { NodeBinary } from './node-binary.ts';

interface Material {
  readonly name?: string;
  readonly uri?: string;
  readonly digest: Readonly<Record<string, string>>;
  readonly annotations?: object;
}

/**
 * Writes what the packages were made from: the commit, the lock file and Node, with the digest of each file. The form
 * is that of SLSA (in-toto Statement v1, https://slsa.dev/spec/v1.0/provenance), so that a release can sign it. It is
 * not signed here.
 */
export async function writeProvenance(
  { root, name, version, arch }: Facts,
  {
    files,
    node,
    target,
  }: { readonly files: readonly string[]; readonly node: NodeBinary | undefined; readonly target: string },
): Promise<void> {
  const subject: Material[] = [];
  for (const file of files) subject.push({ name: basename(file), digest: { sha256: await digestOf(file, 'sha256') } });
  const materials: readonly Material[] = [
    ...(await commitOf(root)),
    { name: 'package-lock.json', digest: { sha256: await digestOf(join(root, 'package-lock.json'), 'sha256') } },
    ...(node === undefined ? [] : [nodeMaterial(node)]),
  ];
  const statement = {
    _type: 'https://in-toto.io/Statement/v1',
    subject,
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: 'https://cri-resize-shim.io/npm-run-package/v1',
        externalParameters: { name, version, arch },
        resolvedDependencies: materials,
      },
      // Without a signature, the builder cannot be proved, so it is not stated.
      runDetails: { builder: { id: 'https://cri-resize-shim.io/unsigned-local-build' } },
    },
  };
  writeFileSync(target, `${JSON.stringify(statement, null, 2)}\n`);
}

const nodeMaterial = ({ package: name, version, integrity }: NodeBinary): Material => ({
  uri: `pkg:npm/${name}@${version}`,
  digest: { sha512: Buffer.from(integrity.slice('sha512-'.length), 'base64').toString('hex') },
});

/** Returns the commit and whether files differ from it. Empty without a history, as in the build of the image. */
async function commitOf(root: string): Promise<readonly Material[]> {
  if (!existsSync(join(root, '.git'))) return [];
  const git = async (...args: readonly string[]): Promise<string> => (await execa('git', args, { cwd: root })).stdout;
  const changed = (await git('status', '--porcelain')) !== '';
  return [{ uri: 'git+.', digest: { gitCommit: await git('rev-parse', 'HEAD') }, annotations: { changed } }];
}

async function digestOf(file: string, algorithm: string): Promise<string> {
  const hash = createHash(algorithm);
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
