import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import type { Facts } from './facts.ts';
import type { NodeBinary } from './node-binary.ts';

interface Component {
  readonly 'bom-ref': string;
  readonly [key: string]: unknown;
}

interface Dependency {
  readonly ref: string;
  readonly dependsOn: readonly string[];
}

interface Sbom {
  readonly serialNumber?: string | undefined;
  readonly metadata: { readonly component: Component; readonly timestamp?: string };
  readonly components: readonly Component[];
  readonly dependencies: readonly Dependency[];
}

/** Writes the bill of materials of the folder. */
export async function writeFolderSbom(facts: Facts, target: string): Promise<void> {
  write(await programSbom(facts), target);
}

/** Writes the bill of materials of the .deb and the single executable: the program and Node. */
export async function writeSbomWithNode(facts: Facts, node: NodeBinary, target: string): Promise<void> {
  const [program, component] = [await programSbom(facts), await nodeComponent(node)];
  const own = program.metadata.component['bom-ref'];
  const withNode = ({ ref, dependsOn }: Dependency): Dependency =>
    ref === own ? { ref, dependsOn: [...dependsOn, component['bom-ref']] } : { ref, dependsOn };
  const dependencies = [...program.dependencies.map(withNode), { ref: component['bom-ref'], dependsOn: [] }];
  write({ ...program, components: [...program.components, component], dependencies }, target);
}

function write(sbom: Sbom, target: string): void {
  writeFileSync(target, `${JSON.stringify(reproducible(sbom), null, 2)}\n`);
}

/**
 * Makes a bill of materials reproducible if SOURCE_DATE_EPOCH is set, as for a release: replaces the time that npm
 * generates by that time, and the serial number by one that follows from the content.
 */
export function reproducible(sbom: Sbom, epoch = process.env['SOURCE_DATE_EPOCH']): Sbom {
  if (epoch === undefined) return sbom;
  const timestamp = new Date(Number(epoch) * 1000).toISOString();
  const same = { ...sbom, serialNumber: undefined, metadata: { ...sbom.metadata, timestamp } };
  const digest = createHash('sha256').update(JSON.stringify(same)).digest('hex');
  // A UUID of version 8, whose content is free (RFC 9562).
  const [a, b, c, d] = [digest.slice(0, 8), digest.slice(8, 12), digest.slice(12, 15), digest.slice(15, 18)];
  return { ...same, serialNumber: `urn:uuid:${a}-${b}-8${c}-8${d}-${digest.slice(18, 30)}` };
}

/** Node with the parts that it reports itself, and the name under which its vulnerabilities are published (CPE). */
async function nodeComponent({ program, package: name, version, integrity }: NodeBinary): Promise<Component> {
  const { stdout } = await execa(program, ['--print', 'JSON.stringify(process.versions)']);
  const versions = JSON.parse(stdout) as Readonly<Record<string, string>>;
  const ref = `pkg:npm/${name}@${version}`;
  // The first entry is Node itself. `modules` and `napi` are interface versions.
  const parts = Object.entries(versions).filter(([part]) => !['node', 'modules', 'napi'].includes(part));
  return {
    'bom-ref': ref,
    type: 'platform',
    name: 'node',
    version,
    purl: ref,
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
    hashes: [{ alg: 'SHA-512', content: Buffer.from(integrity.slice('sha512-'.length), 'base64').toString('hex') }],
    licenses: [{ license: { name: 'MIT, and the licenses of its parts' } }],
    components: parts.map(([part, release]) => ({
      'bom-ref': `${ref}#${part}`,
      type: 'library',
      name: part,
      version: release,
    })),
  };
}

/**
 * Returns what the program is made of, as CycloneDX. Uses npm's own `npm sbom` on the lockfile, which has all the data
 * of @cyclonedx/cyclonedx-npm and is already installed. The result has only what is reachable from the `dependencies`
 * of the program, because npm's `--omit dev` also omits what a tool of ours needs as well. koffi has a native part for
 * each platform, of which only the shipped one stays.
 */
async function programSbom({ root, name, arch }: Facts): Promise<Sbom> {
  const flags = ['--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--package-lock-only'];
  const { stdout } = await execa('npm', ['sbom', ...flags], { cwd: root });
  const sbom = JSON.parse(stdout) as Sbom;
  const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { dependencies: object };
  const own = sbom.metadata.component['bom-ref'];
  const needed = Object.keys(dependencies);
  const native = `@koromix/koffi-linux-${arch}@`;
  const edges = new Map(sbom.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]));
  const targetsOf = (ref: string): readonly string[] => {
    const all = edges.get(ref) ?? [];
    if (ref === own) return all.filter((to) => needed.includes(nameOf(to)));
    return all.filter((to) => !to.startsWith('@koromix/koffi-') || to.startsWith(native));
  };
  const reached = new Set([own]);
  // Iterating over a set includes elements that are added meanwhile.
  for (const ref of reached) for (const to of targetsOf(ref)) reached.add(to);
  return {
    ...sbom,
    // npm uses the name of the folder.
    metadata: { ...sbom.metadata, component: { ...sbom.metadata.component, name } },
    components: sbom.components.filter((component) => reached.has(component['bom-ref'])),
    dependencies: [...reached].map((ref) => ({ ref, dependsOn: targetsOf(ref) })),
  };
}

/** Returns the name in `@scope/name@1.2.3`. */
const nameOf = (ref: string): string => ref.slice(0, ref.lastIndexOf('@'));
