import { steadyNow, within } from '../../core/index.ts';
import type { Messages } from '../../runtime/index.ts';
import { awaitComparable, type DecreaseReclaimer, measuredByRuntime, type Node } from '../../sandbox/index.ts';
import type { DelayedCall } from '../proxy/interception.ts';
import { decodeOrUndefined } from './forward.ts';
import type { Amendment, Delay } from './interceptors.ts';

/** Maximum delay. cAdvisor measures a cgroup in use every 10 to 20 s and an idle one every 15 to 30 s. */
const LONGEST_WAIT_MS = 40_000;
/** Part of the caller's time that is reserved for the call itself. */
const RESERVE_MS = 5000;

/** Longer requests are not read: decoding blocks the event loop. Those of kubelet have about 100 bytes. */
const MAX_REQUEST_BYTES = 64 * 1024;

/**
 * Delays PodSandboxStats. kubelet calls it before it lowers a memory limit, with the feature gate
 * PodAndContainerStatsFromCRI. Waits until usage is held below the limits that kubelet has admitted.
 */
export function podSandboxStats(node: Node, decreaseReclaimer: DecreaseReclaimer): Delay {
  return (call) => {
    const sandboxId = sandboxOf(node, call.request);
    return atMost(node, call, sandboxId, awaitComparable(node, decreaseReclaimer, sandboxId, 'runtime'));
  };
}

/**
 * Records each successful PodSandboxStats and leaves the response unchanged: kubelet compares usage with it. After a
 * failed call, kubelet uses cAdvisor's figure of the pod.
 */
export function podSandboxStatsAnswered(node: Node, decreaseReclaimer: DecreaseReclaimer): Amendment {
  return ({ request }) => {
    measuredByRuntime(node, decreaseReclaimer, sandboxOf(node, request));
    return undefined;
  };
}

/**
 * Delays ListContainerStats and StreamContainerStats. kubelet calls one of them for one pod before it lowers a memory
 * limit, and then compares the usage of the containers and cAdvisor's last measurement of the pod's usage with the new
 * limits. Waits until both are below the limits that kubelet has admitted. Forwards calls for all pods at once.
 */
export function listContainerStats(node: Node, decreaseReclaimer: DecreaseReclaimer): Delay {
  return (call) => {
    // The requests of both methods are the same.
    const request = read(node, 'ListContainerStatsRequest', call.request);
    const sandboxId = request?.filter?.pod_sandbox_id ?? '';
    return atMost(node, call, sandboxId, awaitComparable(node, decreaseReclaimer, sandboxId, 'cadvisor'));
  };
}

const sandboxOf = (node: Node, request: Uint8Array): string =>
  read(node, 'PodSandboxStatsRequest', request)?.pod_sandbox_id ?? '';

const read = <Name extends keyof Messages>(node: Node, name: Name, bytes: Uint8Array): Messages[Name] | undefined =>
  bytes.length > MAX_REQUEST_BYTES ? undefined : decodeOrUndefined(node.failOpen, name, bytes);

/** Limits the time of a wait. Undefined if there is no wait. The promise never rejects. */
function atMost(
  { log }: Node,
  { path, timeoutMs }: DelayedCall,
  sandbox: string,
  waiting: Promise<void> | undefined,
): Promise<void> | undefined {
  if (waiting === undefined) return undefined;
  const start = steadyNow();
  const limitMs = Math.min(LONGEST_WAIT_MS, timeoutMs - RESERVE_MS);
  const isInTime = within(
    limitMs,
    waiting.then(() => true),
  );
  return isInTime.then((inTime = false) => {
    const fields = { method: path, sandbox, ms: Math.round(steadyNow() - start), inTime };
    log.info(fields, 'call held back until usage is below the pending memory limits');
  });
}
