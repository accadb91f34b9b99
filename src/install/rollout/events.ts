import { wallTime } from '../../core/index.ts';
import { type Api, ApiRefusal, eventOf, readText } from '../../kubernetes/index.ts';

/** The events of a node, for `kubectl describe node`. Documented in docs/kubernetes.md. */
export type Reason =
  | 'ShimInstalled'
  | 'ShimInstallRefused'
  | 'ShimInstallFailed'
  | 'ShimUninstalling'
  | 'ShimUninstalled'
  | 'ShimUninstallFailed'
  | 'ShimLeftInstalled'
  | 'ShimCanaryPassed'
  | 'ShimCanaryFailed'
  | 'ShimDrift'
  | 'ShimDriftEnded';

const NORMAL: readonly Reason[] = [
  'ShimInstalled',
  'ShimUninstalling',
  'ShimUninstalled',
  'ShimCanaryPassed',
  'ShimDriftEnded',
];
const CONTROLLER = 'cri-resize-shim-installer';
const IDLE_MS = 10_000;
const LONGEST_ANSWER = 64 * 1024;
const ALREADY_EXISTS = 409;

function actionOf(reason: Reason): string {
  if (/^Shim(?:Drift|Canary)/.test(reason)) return 'Watch';
  return reason.startsWith('ShimInstall') ? 'Install' : 'Uninstall';
}

/** Creates an event. Repeated calls create the same event. Rejects like {@link Api}. */
export type PostEvent = (signal: AbortSignal) => Promise<void>;

/** Returns a function that creates an event of a node. */
export function nodeEvent(api: Api, node: string, reason: Reason, note: string): PostEvent {
  // Events of objects without a namespace must be in this namespace.
  const namespace = 'default';
  const body = eventOf({
    namespace,
    name: node,
    reporter: CONTROLLER,
    instance: node,
    // kubectl finds events of a node by uid, and kubelet uses the node name as uid.
    regarding: { apiVersion: 'v1', kind: 'Node', name: node, uid: node },
    action: actionOf(reason),
    type: NORMAL.includes(reason) ? 'Normal' : 'Warning',
    reason,
    note,
    at: wallTime(),
  });
  const path = `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
  return async (signal) => {
    try {
      const response = await api({ method: 'POST', path, body, idleMs: IDLE_MS, signal });
      // The event exists even if the response cannot be read.
      await readText(response, LONGEST_ANSWER).catch(() => undefined);
    } catch (error) {
      // The response to an earlier try was lost.
      if (!(error instanceof ApiRefusal) || error.status !== ALREADY_EXISTS) throw error;
    }
  };
}
