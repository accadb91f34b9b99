import type { ClientProcess } from '../../core/index.ts';
import type { ResizeState } from '../plan/resize-request.ts';
import type { ValueChange } from '../plan/value-changes.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';

/** One resize in its present state, from any source. Times are in milliseconds since the epoch. */
export interface HistoryEntry {
  readonly id: string;
  readonly pod: PodIdentity;
  readonly requester: Requester;
  readonly state: ResizeState;
  /** A Reason of errors, or why the resize was canceled. */
  readonly reason: string | undefined;
  readonly message: string | undefined;
  readonly changes: readonly ValueChange[];
  /** Whether steps had been applied and were rolled back. */
  readonly isRolledBack: boolean;
  readonly createdAt: number;
  readonly changedAt: number;
  /** Number of times that the requester asked for this resize with this result. */
  readonly count: number;
}

/**
 * The requester of a resize. The process is a hint for people, read from the socket's peer: any process may choose its
 * name. No decision depends on it.
 */
export interface Requester {
  /**
   * `spec`: the sizeLimit of a volume has changed in the pod's spec. `shim`: a volume follows an earlier resize of its
   * pod, or a pod limit rises for a starting container.
   */
  readonly kind: 'kubelet' | 'cri-client' | 'api' | 'annotation' | 'spec' | 'shim';
  /** The client process, if known. */
  readonly process?: ClientProcess | undefined;
}

/** Programs that contain kubelet: k3s and rke2 run it as `k3s-server` or `k3s-agent`, MicroK8s as `kubelite`. */
const KUBELETS = /^(?:kubelet|kubelite|hyperkube|k3s(?:-.*)?)$/;

/** Returns the client of a CRI call. A client whose process is not known is a CRI client. */
export const criRequester = (process: ClientProcess | undefined): Requester => ({
  kind: KUBELETS.test(process?.name ?? '') ? 'kubelet' : 'cri-client',
  process,
});

/** Returns the client of a call of the resize API. */
export const apiRequester = (process: ClientProcess | undefined): Requester => ({ kind: 'api', process });

/** Formats a requester: `kubelet (812)`, `crictl (4711)`, `API (resizectl, 4712)`, `annotation`, `spec`, `shim`. */
export function requesterText({ kind, process }: Requester): string {
  const { pid, name } = process ?? {};
  const known = [name, pid === undefined ? undefined : String(pid)].filter((text) => text !== undefined);
  if (kind === 'annotation' || kind === 'spec' || kind === 'shim') return kind;
  const label = kind === 'api' ? 'API' : kind === 'kubelet' ? 'kubelet' : (name ?? 'CRI client');
  const rest = known.filter((text) => text !== label);
  return rest.length === 0 ? label : `${label} (${rest.join(', ')})`;
}
