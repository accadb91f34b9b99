import { dirname, join } from 'node:path';
import { EXECUTABLE, SERVICE, type Site, unitProperties } from '../host/index.ts';
import { Refusal } from '../kubelet/index.ts';
import { type Finding, findingsOf } from './finding.ts';
import { isThere } from './program.ts';

/** Where a package has the program. */
export const PACKAGE_FOLDER = '/usr/lib/cri-resize-shim';
/** Where `resizectl install` and the DaemonSet have it. */
const OWN_FOLDER = '/usr/local/lib/cri-resize-shim';

/** Whose units systemd has loaded: those of a package, of `resizectl install`, or none. */
export type Owner = 'package' | 'resizectl' | 'none';

/** Returns whose units systemd has loaded, by the folder of the service's file. */
export async function unitOwner({ unitFolder }: Pick<Site, 'unitFolder'>): Promise<Owner> {
  const path = (await unitProperties(SERVICE, ['FragmentPath']))('FragmentPath')[0] ?? '';
  if (path === '') return 'none';
  return dirname(path) === unitFolder ? 'resizectl' : 'package';
}

/** Throws Refusal if the units belong to an installation of the other kind. */
export async function refuseOtherOwner(site: Pick<Site, 'unitFolder'>, own: Exclude<Owner, 'none'>): Promise<void> {
  const owner = await unitOwner(site);
  if (owner === 'none' || owner === own) return;
  if (owner === 'resizectl')
    throw new Refusal(
      `the units in ${site.unitFolder} belong to an installation of resizectl, not to the package`,
      'run /usr/local/bin/resizectl uninstall first',
    );
  throw new Refusal(
    'the units of the shim belong to a package',
    'remove the package with its package manager, or run its own /usr/bin/resizectl uninstall',
  );
}

/** Whether a folder has the program: as a folder, or as the single executable. */
export const hasProgram = async (folder: string): Promise<boolean> =>
  (await isThere(join(folder, 'package.json'))) || isThere(join(folder, EXECUTABLE));

/** Checks whether there is more than one installation on this node. */
export async function checkInstallation(folders = { package: PACKAGE_FOLDER, own: OWN_FOLDER }): Promise<Finding> {
  const { ok, warning } = findingsOf('installation');
  const [isPackaged, isOwn] = [await hasProgram(folders.package), await hasProgram(folders.own)];
  if (!isPackaged || !isOwn) return ok(isPackaged ? `package at ${folders.package}` : isOwn ? folders.own : 'none');
  return warning(
    `two: a package at ${folders.package}, and ${folders.own}; units in /etc/systemd/system take precedence over those of the package`,
    'remove one: the package with its package manager, or the other with /usr/local/bin/resizectl uninstall',
  );
}
