import * as z from 'zod/mini';
import type { Output } from '../command-texts.ts';
import { UsageError } from '../output/failure.ts';
import { objectText, printable, table } from '../output/text.ts';
import type { Ended, Kubectl } from './kubectl.ts';

/** One node, as reported by its own resizectl. An empty text means unknown. */
export interface FleetNode {
  readonly node: string;
  readonly version: string;
  /** The state of the shim: `ready`, or the findings of doctor. */
  readonly state: string;
  readonly bypass: string;
  /** The finding of doctor's check `kubelet`: whether kubelet uses the shim. */
  readonly kubelet: string;
  /** Why the node cannot be read. */
  readonly error: string;
}

/** Number of nodes that are queried at the same time. */
const AT_ONCE = 8;

const report = z.object({
  checks: z.array(z.object({ check: z.string(), result: z.string(), found: z.string() })),
});

/** Asks resizectl on each node with a pod of the DaemonSet, ordered by node name. Rejects with UsageError. */
export async function fleetOf(kubectl: Kubectl, place: InstallerPlace): Promise<readonly FleetNode[]> {
  const installers = await installersOf(kubectl, place);
  const nodes: FleetNode[] = [];
  const waiting = [...installers];
  const work = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      nodes.push(await nodeReport(kubectl, next));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return nodes.toSorted((one, other) => (one.node < other.node ? -1 : 1));
}

async function nodeReport(kubectl: Kubectl, installer: Installer): Promise<FleetNode> {
  const unknown = { node: installer.node, version: '', state: '', bypass: '', kubelet: '', error: '' };
  if (installer.phase !== 'Running') return { ...unknown, error: `the pod of the DaemonSet is ${installer.phase}` };
  const version = await resizectlOn(kubectl, installer, ['--version']);
  if (version.code !== 0) return { ...unknown, error: errorIn(version) };
  const named = { ...unknown, version: version.out.trim() };
  // Its exit code says whether a check has failed.
  const doctor = await resizectlOn(kubectl, installer, ['doctor', '--output=json']);
  const read = report.safeParse(jsonOf(doctor.out));
  if (!read.success) return { ...named, error: errorIn(doctor) };
  const missing = ['shim', 'bypass', 'kubelet'].filter((name) => read.data.checks.every(({ check }) => check !== name));
  if (missing.length > 0) return { ...named, error: `doctor has not checked ${missing.join(', ')}` };
  const found = (check: string): string => {
    const finding = read.data.checks.find((one) => one.check === check);
    return finding === undefined ? '' : `${finding.result === 'ok' ? '' : `${finding.result}: `}${finding.found}`;
  };
  return { ...named, state: found('shim'), bypass: found('bypass'), kubelet: found('kubelet') };
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Why a command has failed; never empty. */
const errorIn = ({ code, err }: Ended): string =>
  err.trim().split('\n').at(-1) || `no report of resizectl, which ended with exit code ${code}`;

/** Formats the nodes. */
export function fleetText(nodes: readonly FleetNode[], output: Output): string {
  if (output === 'json' || output === 'yaml') return objectText({ nodes }, output);
  if (output === 'name') return nodes.map(({ node }) => `${printable(node)}\n`).join('');
  if (nodes.length === 0) return 'no node has a pod of the DaemonSet\n';
  const rows = nodes.map(({ node, version, state, bypass, kubelet, error }) =>
    error === '' ? [node, version, state, bypass, kubelet] : [node, version, `unknown: ${error}`],
  );
  return table([['NODE', 'VERSION', 'SHIM', 'BYPASS', 'KUBELET'], ...rows]);
}

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
interface InstallerPlace {
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
async function installersOf(kubectl: Kubectl, { shimNamespace }: InstallerPlace): Promise<readonly Installer[]> {
  const { items } = podList.parse(await kubectl.get('pods', `--namespace=${shimNamespace}`));
  const found = items.flatMap(({ metadata, spec, status }): Installer[] => {
    if (spec.nodeName === undefined) return [];
    // Not by label: the chart and the manifests use different labels.
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

/** Finds a pod: `NAME`, by default in the context's namespace, or `NAMESPACE/NAME`. Rejects with UsageError. */
export async function placedPod(kubectl: Kubectl, namespace: string | undefined, text: string): Promise<PlacedPod> {
  const [, before = namespace, name = text] = /^([^/]+)\/([^/]+)$/.exec(text) ?? [];
  if (namespace !== undefined && before !== namespace)
    throw new UsageError(`pod ${JSON.stringify(text)} is not in the namespace of -n, ${JSON.stringify(namespace)}`);
  // A name must not be interpreted as a flag of kubectl.
  if (!/^[a-z0-9][a-z0-9.-]*$/.test(name))
    throw new UsageError(`invalid pod ${JSON.stringify(text)}: expected NAME or NAMESPACE/NAME`);
  const where = before === undefined ? [] : [`--namespace=${before}`];
  const { metadata, spec } = onePod.parse(await kubectl.get('pod', name, ...where));
  if (spec.nodeName === undefined) throw new UsageError(`pod ${text} runs on no node yet`);
  return { ...metadata, node: spec.nodeName };
}

/** The mount namespace of the host, as the installer enters it (hostPID). */
const PATH = 'PATH=/usr/local/bin:/usr/bin:/bin:/opt/bin';
const onHost = ['nsenter', '--target', '1', '--mount', '--', '/usr/bin/env', PATH];

/** Runs the resizectl of a node, of the version that is installed there. */
export const resizectlOn = (kubectl: Kubectl, installer: Installer, args: readonly string[]): Promise<Ended> =>
  kubectl.exec(installer, CONTAINER, [...onHost, 'resizectl', ...args]);
