import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../core/errors/index.ts';
import { layerName, readEndpointChain } from './chain.ts';
import { findKubeletProcess } from './process.ts';
import { isSameSocket } from './socket.ts';
import { USED_FILE } from './watch.ts';

/**
 * Whether the configuration of the running kubelet has the shim. `unknown`: no kubelet runs, a file cannot be read now, or kubelet is not
 * expected to use the shim.
 */
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

/** Exists while the unit is enabled: systemctl(1), `enable`. */
const ENABLED = '/etc/systemd/system/multi-user.target.wants/cri-resize-shim.service';

/** Reads the endpoint in the configuration of the running kubelet. Rejects if procfs or the root of the host cannot be read. */
export async function driftOf(places: DriftPlaces): Promise<Drift> {
  const { procRoot, listen } = places;
  const process = await findKubeletProcess(procRoot);
  if (process === undefined) return { state: 'unknown', note: 'no kubelet runs' };
  const { endpoint, winner, layers } = await readEndpointChain(process.flags, process.view);
  if (endpoint === undefined)
    return { state: 'unknown', note: layers.find(({ problem }) => problem !== undefined)?.problem ?? '' };
  const origin = `set by ${layerName(winner)}`;
  if (await isSameSocket(endpoint, listen))
    return { state: 'shim', note: `kubelet is configured to use the shim, ${origin}` };
  if (!(await isExpected(places))) return { state: 'unknown', note: 'kubelet is not expected to use the shim' };
  return { state: 'past', note: `kubelet is configured to use ${endpoint}, not the shim, ${origin}` };
}

/** Whether the shim is installed and was used. A removal, by `resizectl uninstall` or by hand, disables its units. */
async function isExpected({ hostRoot, stateFolder }: DriftPlaces): Promise<boolean> {
  return (await exists(join(hostRoot, ENABLED))) && (await exists(join(hostRoot, stateFolder, USED_FILE)));
}

async function exists(path: string): Promise<boolean> {
  try {
    // A link of systemd leads to a path of the host.
    await lstat(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}
