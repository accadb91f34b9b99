import { labelNode, namesOf, nodesOfPods, readNode } from '../node.ts';
import type { Label } from '../options.ts';
import { type RetryOptions, loggingChanges, retry, sleep } from '../turns/index.ts';
import { REMOVING, VERSION_LABEL } from '../version-label.ts';
import type { Api } from '../../../kubernetes/client/index.ts';

export interface RestoreContext extends RetryOptions {
  readonly api: Api;
  readonly namespace: string;
  /** The label of the nodes that have the shim. */
  readonly label: Label;
}

const NODES = '/api/v1/nodes';
const INSTALLER = 'app.kubernetes.io/name=cri-resize-shim-installer';
/** Only labels with this prefix are ours to remove. */
const OWN = 'cri-resize-shim.io/';
const POLL_MS = 5000;
/** A node that is not Ready for this time is not waited for. The restart of its kubelet takes less. */
const LOST_MS = 300_000;
/** How many nodes are read at a time. */
const READ = 50;
/** A message lists this many nodes. */
const SHOWN = 10;

/**
 * Removes the label from all nodes, which makes their pods uninstall the shim in turns, and waits until the pods are gone, except those on
 * nodes that are not Ready. Returns the exit code: 0, or 1 if no removal has begun on a node, or one has failed. Rejects only with the reason of the signal.
 */
export async function restore(context: RestoreContext, signal: AbortSignal): Promise<0 | 1> {
  const { api, label, say } = context;
  if (!label.key.startsWith(OWN)) {
    say(
      `the label ${label.key} is not one of the shim, so it is not removed from nodes: uninstall the shim first, or set restore.enabled=false`,
    );
    return 1;
  }
  const named = (path: string, selector: string): Promise<string[]> =>
    retry('the API server cannot be asked', context, signal, (at) => namesOf(api, path, selector, at));
  for (const node of await named(NODES, `${label.key}=${label.value}`)) {
    await withoutLabel(context, node, label.key, signal);
    say(`${node}: the label is removed`);
  }
  await podsGone(context, signal);
  const begun = await named(NODES, `${VERSION_LABEL}=${REMOVING}`);
  const left = (await named(NODES, VERSION_LABEL)).filter((node) => !begun.includes(node));
  if (begun.length > 0) {
    // The usual case: the restarted kubelet ends the pod, which no longer fits the node, and the host completes the removal.
    say(
      `on ${shown(begun)} the pod ended before the removal did: \`resizectl doctor\` there says whether the shim is gone`,
    );
    for (const node of begun) await withoutLabel(context, node, VERSION_LABEL, signal);
  }
  const [first] = left;
  if (first === undefined) {
    say('the shim is removed from all nodes');
    return 0;
  }
  say(`the shim is still installed on ${shown(left)}: run \`resizectl uninstall\` there`);
  say(`after that, for each node: kubectl label node ${first} ${VERSION_LABEL}-`);
  return 1;
}

function withoutLabel(context: RestoreContext, node: string, label: string, signal: AbortSignal): Promise<void> {
  const { api } = context;
  return retry(`${node} cannot be changed`, context, signal, (at) => labelNode(api, node, label, undefined, at));
}

/** Waits until the pods of the installer are gone, except those on nodes that are not Ready, which it logs. */
async function podsGone(context: RestoreContext, signal: AbortSignal): Promise<void> {
  const { api, namespace, say, clock } = context;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`;
  const tell = loggingChanges(say);
  const notReady = new Map<string, number>();
  const isLost = (node: string): boolean => clock.now() - (notReady.get(node) ?? Infinity) >= LOST_MS;
  for (;;) {
    const nodes = await retry('the API server cannot be asked', context, signal, (at) =>
      nodesOfPods(api, path, INSTALLER, at),
    );
    const waiting = nodes.filter((node) => !isLost(node));
    if (waiting.length === 0) {
      if (nodes.length > 0) say(`not waited for, because the node is not Ready or gone: ${shown(nodes)}`);
      return;
    }
    tell(`waiting for ${waiting.length} pods of the installer, which uninstall the shim in turns: ${shown(waiting)}`);
    for (const node of waiting.slice(0, READ)) {
      const found = await retry(`${node} cannot be read`, context, signal, (at) => readNode(api, node, at));
      if (found?.isReady === true) notReady.delete(node);
      else if (!notReady.has(node)) notReady.set(node, clock.now());
    }
    await sleep(clock, POLL_MS, signal);
  }
}

const shown = (names: readonly string[]): string =>
  names.slice(0, SHOWN).join(', ') + (names.length > SHOWN ? ` and ${names.length - SHOWN} more` : '');
