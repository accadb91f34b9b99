import { type Api, eventOf, readText } from '../../kubernetes/client/index.ts';

/** What a node is told of, for `kubectl describe node`. Documented in docs/kubernetes.md. */
export type Reason =
  | 'ShimInstalled'
  | 'ShimInstallRefused'
  | 'ShimInstallFailed'
  | 'ShimUninstalled'
  | 'ShimUninstallFailed'
  | 'ShimLeftInstalled';

const CONTROLLER = 'cri-resize-shim-installer';
const IDLE_MS = 10_000;
const LONGEST_ANSWER = 64 * 1024;

/** Tells it once. Rejects as {@link Api} does. */
export async function tellNode(
  api: Api,
  node: string,
  reason: Reason,
  note: string,
  signal: AbortSignal,
): Promise<void> {
  // Where events about what has no namespace of its own have to be.
  const namespace = 'default';
  const body = eventOf({
    ...{ namespace, name: node, reporter: CONTROLLER, instance: node },
    // kubectl looks for a node's events by its name as uid, as kubelet has it.
    regarding: { apiVersion: 'v1', kind: 'Node', name: node, uid: node },
    action: reason.startsWith('ShimInstall') ? 'Install' : 'Uninstall',
    type: reason === 'ShimInstalled' || reason === 'ShimUninstalled' ? 'Normal' : 'Warning',
    ...{ reason, note, at: Date.now() },
  });
  const path = `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
  const response = await api({ method: 'POST', path, body, idleMs: IDLE_MS, signal });
  // It is there, whatever becomes of the answer.
  await readText(response, LONGEST_ANSWER).catch(() => undefined);
}
