import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import type { Facts } from './facts.ts';

interface Sbom {
  readonly metadata: { readonly component: { readonly 'bom-ref': string } };
  readonly components: readonly { readonly 'bom-ref': string }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/**
 * What the package is made of, as CycloneDX. By npm's own `npm sbom`, from the lock file: it knows all that
 * @cyclonedx/cyclonedx-npm would ask it for, and is there already. Of that, what the program needs to run is what can be got to from
 * its `dependencies`: npm's `--omit dev` also leaves out what a tool of ours needs as well. koffi has a native part for
 * each platform; the one that is shipped stays.
 */
export async function writeSbom({ root, name, arch }: Facts, target: string): Promise<void> {
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
  const shipped = {
    ...sbom,
    // npm takes the name of the folder.
    metadata: { ...sbom.metadata, component: { ...sbom.metadata.component, name } },
    components: sbom.components.filter((component) => reached.has(component['bom-ref'])),
    dependencies: [...reached].map((ref) => ({ ref, dependsOn: targetsOf(ref) })),
  };
  writeFileSync(target, `${JSON.stringify(shipped, null, 2)}\n`);
}

/** Of `@scope/name@1.2.3`. */
const nameOf = (ref: string): string => ref.slice(0, ref.lastIndexOf('@'));
