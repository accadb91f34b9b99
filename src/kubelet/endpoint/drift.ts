import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { effectiveSettings, errnoOf } from '../../core/index.ts';
import { layerName, readEndpointChain } from './chain.ts';
import { isSameSocket, type ProcessView, seenBy, socketPathOf, USED_FILE } from './paths.ts';
import { findKubeletProcess } from './process.ts';

/** Whether kubelet is configured to use the shim. `unknown`: no kubelet runs, or it is not expected to. */
export interface Drift {
  readonly state: 'shim' | 'past' | 'unknown';
  readonly note: string;
}

/** Where to look for a drift. */
export interface DriftPlaces {
  /** Mount point of procfs. */
  readonly procRoot: string;
  /** The root of the host: `/proc/1/root` in a pod. */
  readonly hostRoot: string;
  /** The CRI socket of the shim. */
  readonly listen: string;
  /** The state folder of the shim on the host. */
  readonly stateFolder: string;
}

/**
 * Returns the places of a shim with a configuration file. Rejects with ConfigError.
 * @param config if it does not exist, the defaults apply
 */
export async function placesOf(config: string, hostRoot: string): Promise<DriftPlaces> {
  const isThere = await lstat(config).then(
    () => true,
    () => false,
  );
  const { settings } = await effectiveSettings(isThere ? ['--config', config] : []);
  const of = (key: 'listen' | 'stateFolder'): string => String(settings.find((setting) => setting.key === key)?.value);
  return { procRoot: '/proc', hostRoot, listen: socketPathOf(of('listen')), stateFolder: of('stateFolder') };
}

/** Exists while the unit is enabled: systemctl(1), `enable`. */
const ENABLED = '/etc/systemd/system/multi-user.target.wants/cri-resize-shim.service';

/**
 * Reads the endpoint in the configuration of the running kubelet. Rejects if procfs or the root of the host cannot be
 * read, and if a file of a kubelet that is expected to use the shim cannot be read.
 */
export async function driftOf(places: DriftPlaces): Promise<Drift> {
  const { procRoot, listen } = places;
  const process = await findKubeletProcess(procRoot);
  if (process === undefined) return { state: 'unknown', note: 'no kubelet runs' };
  const { endpoint, winner, layers } = await readEndpointChain(process.flags, process.view);
  const origin = `set by ${layerName(winner)}`;
  if (endpoint !== undefined && (await isSameFor(process.view, endpoint, listen)))
    return { state: 'shim', note: `kubelet is configured to use the shim, ${origin}` };
  if (!(await isExpected(places))) return { state: 'unknown', note: 'kubelet is not expected to use the shim' };
  if (endpoint === undefined)
    throw new Error(layers.find(({ problem }) => problem !== undefined)?.problem ?? 'its configuration is unclear');
  return { state: 'past', note: `kubelet is configured to use ${endpoint}, not the shim, ${origin}` };
}

/** Whether two endpoints name the same socket in our root or in kubelet's root, which may have other links. */
async function isSameFor(view: ProcessView, one: string, other: string): Promise<boolean> {
  if (await isSameSocket(one, other)) return true;
  return (await seenBy(view, socketPathOf(one))) === (await seenBy(view, socketPathOf(other)));
}

/** Whether the shim is installed and was used. A removal, by `resizectl uninstall` or by hand, disables its units. */
async function isExpected({ hostRoot, stateFolder }: DriftPlaces): Promise<boolean> {
  return (await isShimEnabled(hostRoot)) && (await exists(hostRoot, join(stateFolder, USED_FILE)));
}

/** Returns whether the shim's unit is enabled on the host. It is enabled while the shim is installed. */
export function isShimEnabled(hostRoot: string): Promise<boolean> {
  return exists(hostRoot, ENABLED);
}

async function exists(hostRoot: string, file: string): Promise<boolean> {
  try {
    // systemd creates links to paths on the host.
    await lstat(await seenBy({ root: hostRoot, cwd: hostRoot }, file, false));
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}
