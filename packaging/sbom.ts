import { writeFileSync } from 'node:fs';
import { execa } from 'execa';
import type { Facts } from './facts.ts';

interface Sbom {
  readonly metadata: { readonly component: object };
  readonly components: readonly { readonly name: string; readonly 'bom-ref': string }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/**
 * What the package is made of, as CycloneDX. By npm's own `npm sbom`, from the lock file: it knows all that
 * @cyclonedx/cyclonedx-npm would ask it for, and is there already. koffi has a native part for each platform in the lock; the one
 * that is shipped stays.
 */
export async function writeSbom({ root, name, arch }: Facts, target: string): Promise<void> {
  const flags = ['--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--omit', 'dev', '--package-lock-only'];
  const { stdout } = await execa('npm', ['sbom', ...flags], { cwd: root });
  const sbom = JSON.parse(stdout) as Sbom;
  const isShipped = (component: string): boolean =>
    !component.startsWith('@koromix/koffi-') || component.startsWith(`@koromix/koffi-linux-${arch}`);
  const isShippedRef = (ref: string): boolean =>
    !ref.startsWith('@koromix/koffi-') || ref.startsWith(`@koromix/koffi-linux-${arch}@`);
  const shipped = {
    ...sbom,
    // npm takes the name of the folder.
    metadata: { ...sbom.metadata, component: { ...sbom.metadata.component, name } },
    components: sbom.components.filter((component) => isShipped(component.name)),
    dependencies: sbom.dependencies
      .filter(({ ref }) => isShippedRef(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter(isShippedRef) })),
  };
  writeFileSync(target, `${JSON.stringify(shipped, null, 2)}\n`);
}
