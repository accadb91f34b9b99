import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { bypassTarget } from '../../core/index.ts';
import { isSameSocket, socketPathOf } from '../../kubelet/endpoint/paths.ts';
import type { Node } from '../host/site.ts';
import { systemctl } from '../host/systemd.ts';
import { findKubelet } from './kubelet.ts';

/** The unit of kubelet, unless another one of {@link KUBELET_UNITS} is active or enabled. */
export const USUAL_UNIT = 'kubelet.service';
/** The units that run kubelet, on the platforms of docs/install. RKE2 installs both of its units, and starts one. */
const KUBELET_UNITS: readonly string[] = [
  USUAL_UNIT,
  'k3s.service',
  'k3s-agent.service',
  'rke2-server.service',
  'rke2-agent.service',
  'k0sworker.service',
  'k0scontroller.service',
  'snap.microk8s.daemon-kubelite.service',
];

/** Returns the unit that runs kubelet: the first one that is active, otherwise the first one that is enabled. */
export async function findKubeletUnit(): Promise<string> {
  let output: string;
  try {
    output = await systemctl(['show', '--property=Id,ActiveState,UnitFileState', '--', ...KUBELET_UNITS], 10_000);
  } catch {
    // The checks report a systemd that does not answer.
    return USUAL_UNIT;
  }
  const units = output.split('\n\n').map((block) => ({
    id: /^Id=(.*)$/m.exec(block)?.[1] ?? '',
    isActive: /^ActiveState=(?:active|activating|reloading|deactivating)$/m.test(block),
    isEnabled: /^UnitFileState=enabled$/m.test(block),
  }));
  const found = units.find(({ isActive }) => isActive) ?? units.find(({ isEnabled }) => isEnabled);
  return found?.id ?? USUAL_UNIT;
}

/**
 * Returns the socket of the runtime that kubelet uses, or that the shim leads it to. Undefined if it is not known, as
 * without a running kubelet: the checks say why.
 * @param bypassFile the file with the socket that the shim has used last
 */
export async function runtimeOfKubelet(node: Node, bypassFile: string): Promise<string | undefined> {
  const found = await findKubelet(node).catch(() => undefined);
  if (found?.kind !== 'running') return undefined;
  const { endpoint } = found.kubelet;
  const path = socketPathOf(endpoint);
  if (await isSameSocket(path, node.listen)) return bypassTarget(bypassFile);
  return path.startsWith('/') ? path : undefined;
}

const PREFIXES = ['/usr/local', '/opt'] as const;

/**
 * Returns the folder below which the program is, or otherwise is to be installed: the first one that can be written. On
 * Flatcar and other systems with a read-only /usr, that is not /usr/local.
 * @param isInstalled whether the program is below a folder
 */
export async function findPrefix(
  isInstalled: (prefix: string) => Promise<boolean>,
  prefixes: readonly string[] = PREFIXES,
): Promise<string> {
  for (const prefix of prefixes) if (await isInstalled(prefix)) return prefix;
  for (const prefix of prefixes) if (await isWritable(prefix)) return prefix;
  return prefixes[0] ?? '/';
}

const isWritable = (folder: string): Promise<boolean> =>
  access(folder, constants.W_OK).then(
    () => true,
    () => false,
  );
