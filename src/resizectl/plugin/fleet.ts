import * as z from 'zod/mini';
import { objectText, printable, table } from '../output/index.ts';
import type { Output } from '../command-table/index.ts';
import { type Installer, type InstallerPlace, installersOf, resizectlOn } from './installers.ts';
import type { Ended, Kubectl } from './kubectl.ts';

/** One node, as its own resizectl describes it. An empty text: not known. */
export interface FleetNode {
  readonly node: string;
  readonly version: string;
  /** The shim: `ready`, or what doctor has found. */
  readonly state: string;
  readonly bypass: string;
  /** Whether kubelet uses the shim. */
  readonly kubelet: string;
  /** Why the node cannot be read. */
  readonly error: string;
}

/** Nodes that are asked at the same time. */
const AT_ONCE = 8;

const report = z.object({
  checks: z.array(z.object({ check: z.string(), result: z.string(), found: z.string() })),
});

/** Asks the resizectl of each node with a pod of the DaemonSet. The nodes are in the order of their names. Rejects with UsageError. */
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
