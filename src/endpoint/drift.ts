import { layerName, readEndpointChain } from './chain.ts';
import { findKubeletProcess } from './process.ts';
import { isSameSocket } from './socket.ts';

/** Whether the configuration of the running kubelet has the shim. `unknown`: no kubelet runs, or a file cannot be read now. */
export interface Drift {
  readonly state: 'shim' | 'past' | 'unknown';
  readonly note: string;
}

/**
 * Reads the endpoint in the configuration of the running kubelet. Rejects if procfs cannot be read.
 * @param procRoot mount point of procfs
 * @param listen the CRI socket of the shim
 */
export async function driftOf(procRoot: string, listen: string): Promise<Drift> {
  const process = await findKubeletProcess(procRoot);
  if (process === undefined) return { state: 'unknown', note: 'no kubelet runs' };
  const { endpoint, winner, layers } = await readEndpointChain(process.flags, process.view);
  if (endpoint === undefined)
    return { state: 'unknown', note: layers.find(({ problem }) => problem !== undefined)?.problem ?? '' };
  const origin = `set by ${layerName(winner)}`;
  if (await isSameSocket(endpoint, listen))
    return { state: 'shim', note: `kubelet is configured to use the shim, ${origin}` };
  return { state: 'past', note: `kubelet is configured to use ${endpoint}, not the shim, ${origin}` };
}
