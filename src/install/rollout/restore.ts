import { Command } from 'commander';
import { pause } from '../../core/index.ts';
import { type Api, apiOf, IN_CLUSTER, isForbidden, openConnection } from '../../kubernetes/index.ts';
import { patientClock, REMOVING, VERSION_LABEL } from './context.ts';
import { labelNode, namesOf, nodesOfPods, readNode } from './node.ts';
import { count, type Label, label } from './options.ts';
import { loggingChanges, type RetryOptions, retry } from './retry.ts';

export interface RestoreContext extends RetryOptions {
  readonly api: Api;
  readonly namespace: string;
  /** The label of the nodes that have the shim. */
  readonly label: Label;
  /** Number of nodes from which the label is removed at once. */
  readonly portion: number;
}

const NODES = '/api/v1/nodes';
const INSTALLER = 'app.kubernetes.io/name=cri-resize-shim-installer';
/** Only labels with this prefix are ours to remove. */
const OWN = 'cri-resize-shim.io/';
const POLL_MS = 5000;
/** A node that is not Ready for this time is not waited for. The restart of its kubelet takes less. */
const LOST_MS = 300_000;
/**
 * The API may report the old status of a node that has died for up to 40 s, or 50 s from Kubernetes 1.32 on
 * (node-monitor-grace-period), which is less than this time.
 */
const UNREPORTED_MS = 60_000;
/** Retry time for missing rights: the chart has just created this command's role, and the API server may lag. */
const NEW_RIGHTS_MS = 30_000;
/** Number of nodes that are read at a time. */
const READ = 50;
/** Maximum number of nodes in a message. */
const SHOWN = 10;

/**
 * Removes the label from all nodes in portions, which makes their pods uninstall the shim in turns. Waits until the
 * pods are gone, except those on nodes that are not Ready. Returns the exit code 0, or 1 if a removal has not begun,
 * has failed or is unknown, or if a right is missing. Rejects only with the reason of the signal.
 */
export async function restore(context: RestoreContext, signal: AbortSignal): Promise<0 | 1> {
  try {
    return await restored(context, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (!isForbidden(error)) throw error;
    context.say(
      `ended before the shim was uninstalled on all nodes: ${error.message}; this command needs the rights to get, list and patch nodes, and to list pods in ${context.namespace}`,
    );
    return 1;
  }
}

async function restored(context: RestoreContext, signal: AbortSignal): Promise<0 | 1> {
  const { label, say } = context;
  const labelled = await nodesWith(context, `${label.key}=${label.value}`, signal);
  const isOwn = label.key.startsWith(OWN);
  if (!isOwn && (labelled.length > 0 || (await nodesWith(context, VERSION_LABEL, signal)).length > 0)) {
    say(
      `the label ${label.key} is not one of the shim, so it is not removed from nodes: uninstall the shim first, or set restore.enabled=false`,
    );
    return 1;
  }
  const lost = await unlabelled(context, labelled, signal);
  const { begun, unknown } = await removals(context, lost, signal);
  if (begun.length > 0) {
    // The usual case: the restarted kubelet ends the pod, which no longer fits the node, and the host completes the
    // removal.
    say(
      `on ${shown(begun)} the pod ended before the removal did: \`resizectl doctor\` there says whether the shim is gone`,
    );
    for (const node of begun) await withoutLabel(context, node, VERSION_LABEL, signal);
  }
  const installed = (await nodesWith(context, VERSION_LABEL, signal)).filter((node) => !unknown.includes(node));
  return reported(context, installed, unknown);
}

/** Reports the nodes that have or may have the shim. Returns the exit code. */
function reported({ say }: RestoreContext, installed: readonly string[], unknown: readonly string[]): 0 | 1 {
  const [first] = [...installed, ...unknown];
  if (first === undefined) {
    say('the shim is removed from all nodes');
    return 0;
  }
  if (installed.length > 0)
    say(`the shim is still installed on ${shown(installed)}: run \`resizectl uninstall\` there`);
  if (unknown.length > 0)
    say(
      `on ${shown(unknown)} the removal has begun, but the node is not Ready, and its kubelet may still use the shim: run \`resizectl uninstall\` there once it is back`,
    );
  say(`after that, for each node: kubectl label node ${first} ${VERSION_LABEL}-`);
  return 1;
}

/**
 * Returns the nodes whose pod has ended during the removal: `begun` if they are Ready, because the host has completed
 * the removal, otherwise `unknown`. The pod of a node that is down may have been deleted by force.
 * @param lost nodes that are not Ready and still have a pod
 */
async function removals(
  context: RestoreContext,
  lost: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly begun: readonly string[]; readonly unknown: readonly string[] }> {
  const removing = (): Promise<readonly string[]> => nodesWith(context, `${VERSION_LABEL}=${REMOVING}`, signal);
  const withoutPod = (await removing()).filter((node) => !lost.includes(node));
  const down = [...lost, ...(await notReady(context, withoutPod, signal))];
  // A node may have left the cluster in the meantime.
  const all = await removing();
  return { begun: all.filter((node) => !down.includes(node)), unknown: all.filter((node) => down.includes(node)) };
}

/** Waits until nodes are Ready. Returns the nodes that are gone or have not been Ready for a while. */
async function notReady(
  context: RestoreContext,
  nodes: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { say, clock } = context;
  if (nodes.length === 0) return nodes;
  say(`waiting until the nodes are Ready whose pod ended before the removal did: ${shown(nodes)}`);
  await pause(clock, UNREPORTED_MS, signal);
  const lost = new LostNodes(context);
  for (let waiting = nodes; ; ) {
    const asked = waiting.filter((node) => !lost.has(node));
    if (asked.length === 0) return waiting;
    const ready = await lost.look(asked, signal);
    waiting = waiting.filter((node) => !ready.has(node));
    if (ready.size === 0) await pause(clock, POLL_MS, signal);
  }
}

/** Retries like {@link retry}. Also rejects if a right is missing, and not only because its role is new. */
function asked<Value>(
  what: string,
  context: RestoreContext,
  signal: AbortSignal,
  attempt: (signal: AbortSignal) => Promise<Value>,
): Promise<Value> {
  let since: number | undefined;
  const isFinal = (error: unknown): boolean => {
    if (!isForbidden(error)) since = undefined;
    else since ??= context.clock.now();
    return since !== undefined && context.clock.now() - since >= NEW_RIGHTS_MS;
  };
  return retry(what, context, signal, attempt, isFinal);
}

const nodesWith = (context: RestoreContext, selector: string, signal: AbortSignal): Promise<string[]> =>
  asked('the API server cannot be asked', context, signal, (at) => namesOf(context.api, NODES, selector, at));

function withoutLabel(context: RestoreContext, node: string, label: string, signal: AbortSignal): Promise<void> {
  const { api } = context;
  return asked(`${node} cannot be changed`, context, signal, (at) => labelNode(api, node, label, undefined, at));
}

/**
 * Removes the label from nodes in portions: a pod starts to wait for its turn when its node loses the label, and its
 * waiting time is limited (terminationGracePeriodSeconds). The next portion follows when the pods of the previous one
 * are gone, so that no pod waits for long. Resolves when the installer's pods are gone, except those on nodes that are
 * not Ready, which are logged and returned.
 */
async function unlabelled(
  context: RestoreContext,
  nodes: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { say, label, portion, clock } = context;
  const [tell, lost] = [loggingChanges(say), new LostNodes(context)];
  for (const labelled = new Set(nodes); ; ) {
    const waitedFor = (pods: readonly string[]): readonly string[] =>
      pods.filter((node) => !labelled.has(node) && !lost.has(node));
    const pods = await podsOf(context, signal);
    const next = waitedFor(pods).length === 0 ? [...labelled].slice(0, portion) : [];
    for (const node of next) {
      await withoutLabel(context, node, label.key, signal);
      labelled.delete(node);
      say(`${node}: the label is removed`);
    }
    const waiting = waitedFor(pods);
    if (waiting.length === 0 && labelled.size === 0) {
      if (pods.length > 0) say(`not waited for, because the node is not Ready or gone: ${shown(pods)}`);
      return pods;
    }
    const rest = labelled.size === 0 ? '' : `; ${labelled.size} nodes follow`;
    tell(
      `waiting for ${waiting.length} pods of the installer, which uninstall the shim in turns: ${shown(waiting)}${rest}`,
    );
    await lost.look(waiting, signal);
    await pause(clock, POLL_MS, signal);
  }
}

function podsOf(context: RestoreContext, signal: AbortSignal): Promise<readonly string[]> {
  const path = `/api/v1/namespaces/${encodeURIComponent(context.namespace)}/pods`;
  return asked('the API server cannot be asked', context, signal, (at) =>
    nodesOfPods(context.api, path, INSTALLER, at),
  );
}

/** Nodes that have not been Ready for a while. Long gaps between checks reset it: after an outage, reports are late. */
class LostNodes {
  /** Times of the first and of the last look that found a node not Ready. */
  readonly #notReady = new Map<string, { readonly since: number; readonly last: number }>();

  constructor(readonly context: RestoreContext) {}

  has(node: string): boolean {
    const { since, last } = this.#notReady.get(node) ?? { since: 0, last: 0 };
    return last - since >= LOST_MS;
  }

  /** Looks at the first of some nodes. Returns those that are Ready. */
  async look(nodes: readonly string[], signal: AbortSignal): Promise<ReadonlySet<string>> {
    const { context } = this;
    const ready = new Set<string>();
    for (const node of nodes.slice(0, READ)) {
      const found = await asked(`${node} cannot be read`, context, signal, (at) => readNode(context.api, node, at));
      const now = context.clock.now();
      const before = this.#notReady.get(node);
      if (found?.isReady === true) {
        this.#notReady.delete(node);
        ready.add(node);
      } else
        this.#notReady.set(node, {
          since: before === undefined || now - before.last > LOST_MS / 3 ? now : before.since,
          last: now,
        });
    }
    return ready;
  }
}

const shown = (names: readonly string[]): string =>
  names.slice(0, SHOWN).join(', ') + (names.length > SHOWN ? ` and ${names.length - SHOWN} more` : '');

interface RestoreOptions {
  readonly namespace: string;
  readonly label: Label;
  readonly portion: number;
  readonly kubeconfig: string;
}

/** The command `restore` of the installer, which the chart runs before it is deleted. Returns the exit code. */
export async function restoreNodes(argv: readonly string[], say: (line: string) => void): Promise<number> {
  const program = new Command('cri-resize-shim-installer restore')
    .description('Removes the label from all nodes and waits until the shim is uninstalled on them.')
    .helpOption('-h, --help', 'Print this help and exit.')
    .allowExcessArguments(false)
    .requiredOption('--namespace <NAME>', "Namespace of the installer's pods.")
    .requiredOption('--label <KEY=VALUE>', 'Label of the nodes that have the shim.', label)
    .option('--portion <COUNT>', 'From how many nodes the label is removed at once.', count(1, 5000), 20)
    .option('--kubeconfig <FILE>', 'Kubeconfig for the Kubernetes API.', IN_CLUSTER)
    .parse(argv, { from: 'user' });
  const { kubeconfig, ...options } = program.opts<RestoreOptions>();
  const api = apiOf(() => openConnection(kubeconfig));
  const stop = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => stop.abort(new Error(`ended by ${signal}`)));
  try {
    return await restore({ ...options, api, say, clock: patientClock, random: () => Math.random() }, stop.signal);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    say('ended before the shim was uninstalled on all nodes; their pods continue with it');
    return 1;
  }
}
