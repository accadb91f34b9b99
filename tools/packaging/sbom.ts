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
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly Dependency[];
}

/** Writes what the folder is made of. */
export async function writeFolderSbom(facts: Facts, target: string): Promise<void> {
  write(await programSbom(facts), target);
}

/** Writes what the .deb and the single executable are made of: the program and Node. */
export async function writeSbomWithNode(facts: Facts, node: NodeBinary, target: string): Promise<void> {
  const [program, component] = [await programSbom(facts), await nodeComponent(node)];
  const own = program.metadata.component['bom-ref'];
  const withNode = ({ ref, dependsOn }: Dependency): Dependency =>
    ref === own ? { ref, dependsOn: [...dependsOn, component['bom-ref']] } : { ref, dependsOn };
  const dependencies = [...program.dependencies.map(withNode), { ref: component['bom-ref'], dependsOn: [] }];
  write({ ...program, components: [...program.components, component], dependencies }, target);
}

const write = (sbom: Sbom, target: string): void => writeFileSync(target, `${JSON.stringify(sbom, null, 2)}\n`);

/** Node with its own parts, by its own word, and the name under which faults in it are told (CPE). */
async function nodeComponent({ program, package: name, version, integrity }: NodeBinary): Promise<Component> {
  const { stdout } = await execa(program, ['--print', 'JSON.stringify(process.versions)']);
  const versions = JSON.parse(stdout) as Readonly<Record<string, string>>;
  const ref = `pkg:npm/${name}@${version}`;
  // The first is itself; `modules` and `napi` are versions of interfaces.
  const parts = Object.entries(versions).filter(([part]) => !['node', 'modules', 'napi'].includes(part));
  return {
    ...{ 'bom-ref': ref, type: 'platform', name: 'node', version, purl: ref },
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
    hashes: [{ alg: 'SHA-512', content: Buffer.from(integrity.slice('sha512-'.length), 'base64').toString('hex') }],
    licenses: [{ license: { name: 'MIT, and those of its parts' } }],
    components: parts.map(([part, release]) => ({
      ...{ 'bom-ref': `${ref}#${part}`, type: 'library', name: part, version: release },
    })),
  };
}

/**
 * What the program is made of, as CycloneDX. By npm's own `npm sbom`, from the lock file: it knows all that
 * @cyclonedx/cyclonedx-npm would ask it for, and is there already. Of that, what the program needs to run is what can be got to from
 * its `dependencies`: npm's `--omit dev` also leaves out what a tool of ours needs as well. koffi has a native part for
 * each platform; the one that is shipped stays.
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
  // A set that is gone through takes up what is added meanwhile.
  for (const ref of reached) for (const to of targetsOf(ref)) reached.add(to);
  return {
    ...sbom,
    // npm takes the name of the folder.
    metadata: { ...sbom.metadata, component: { ...sbom.metadata.component, name } },
    components: sbom.components.filter((component) => reached.has(component['bom-ref'])),
    dependencies: [...reached].map((ref) => ({ ref, dependsOn: targetsOf(ref) })),
  };
}

/** Of `@scope/name@1.2.3`. */
const nameOf = (ref: string): string => ref.slice(0, ref.lastIndexOf('@'));
