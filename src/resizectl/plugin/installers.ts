import * as z from 'zod/mini';
import { UsageError } from '../output/index.ts';
import type { Ended, Kubectl } from './kubectl.ts';

/** The pods of the DaemonSet, through which resizectl runs on nodes. */

/** A pod of the DaemonSet. */
export interface Installer {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  /** As Kubernetes says: `Running`, `Pending` and so on. */
  readonly phase: string;
}

/** Where the DaemonSet is. */
export interface InstallerPlace {
  readonly shimNamespace: string;
}

const CONTAINER = 'installer';

const podList = z.object({
  items: z.array(
    z.object({
      metadata: z.object({ name: z.string(), namespace: z.string() }),
      spec: z.object({
        nodeName: z.exactOptional(z.string()),
        containers: z.array(z.object({ name: z.string() })),
      }),
      status: z.exactOptional(
        z.object({
          phase: z.exactOptional(z.string()),
        }),
      ),
    }),
  ),
});

const onePod = z.object({
  metadata: z.object({ name: z.string(), namespace: z.string() }),
  spec: z.object({ nodeName: z.exactOptional(z.string()) }),
});

/** Returns the pods of the DaemonSet, also those that do not run, by node. Rejects with UsageError. */
export async function installersOf(kubectl: Kubectl, { shimNamespace }: InstallerPlace): Promise<readonly Installer[]> {
  const { items } = podList.parse(await kubectl.get('pods', `--namespace=${shimNamespace}`));
  const found = items.flatMap(({ metadata, spec, status }): Installer[] => {
    if (spec.nodeName === undefined) return [];
    // Not by label: the chart has other ones than the manifests.
    if (!spec.containers.some(({ name }) => name === CONTAINER)) return [];
    return [{ ...metadata, node: spec.nodeName, phase: status?.phase ?? 'Unknown' }];
  });
  return found.toSorted((one, other) => (one.node < other.node ? -1 : 1));
}

/** Returns the DaemonSet's pod on a node. Rejects with UsageError. */
export async function installerOn(kubectl: Kubectl, place: InstallerPlace, node: string): Promise<Installer> {
  const found = (await installersOf(kubectl, place)).find((one) => one.node === node && one.phase === 'Running');
  if (found !== undefined) return found;
  throw new UsageError(
    `no pod of the DaemonSet runs on node ${node} in namespace ${place.shimNamespace}: label the node cri-resize-shim.io/install=true, or set --shim-namespace`,
  );
}

/** A pod of the cluster, and its node. */
export interface PlacedPod {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
}

/** Finds a pod: `NAME`, in the namespace of the context if none is given, or `NAMESPACE/NAME`. Rejects with UsageError. */
export async function placedPod(kubectl: Kubectl, namespace: string | undefined, text: string): Promise<PlacedPod> {
  const [, before = namespace, name = text] = /^([^/]+)\/([^/]+)$/.exec(text) ?? [];
  if (namespace !== undefined && before !== namespace)
    throw new UsageError(`pod ${JSON.stringify(text)} is not in the namespace of -n, ${JSON.stringify(namespace)}`);
  // An argument of kubectl must not become a flag.
  if (!/^[a-z0-9][a-z0-9.-]*$/.test(name))
    throw new UsageError(`invalid pod ${JSON.stringify(text)}: expected NAME or NAMESPACE/NAME`);
  const where = before === undefined ? [] : [`--namespace=${before}`];
  const { metadata, spec } = onePod.parse(await kubectl.get('pod', name, ...where));
  if (spec.nodeName === undefined) throw new UsageError(`pod ${text} runs on no node yet`);
  return { ...metadata, node: spec.nodeName };
}

/** The mount namespace of the host, as the installer enters it (hostPID). */
const onHost = ['nsenter', '--target', '1', '--mount', '--'];

/** Runs the resizectl of a node, of the version that is installed there. */
export const resizectlOn = (kubectl: Kubectl, installer: Installer, args: readonly string[]): Promise<Ended> =>
  kubectl.exec(installer, CONTAINER, [...onHost, 'resizectl', ...args]);
