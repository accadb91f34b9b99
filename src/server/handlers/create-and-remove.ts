import { describeRequestedPod, type Messages } from '../../runtime/index.ts';
import { applyContainerShares, applyVolumeSizes, type Node, raisePodForRestart } from '../../sandbox/index.ts';
import { decodeOrUndefined } from './forward.ts';
import type { Amendment, Delay } from './interceptors.ts';

/**
 * Observed calls: the registry adds pods and containers when they are created, notifies listeners when they start, and
 * removes them when they are removed. These amendments change nothing, but the client gets its response only after the
 * registry has been updated.
 */

export function learnPod(node: Node): Amendment {
  return async ({ request, response }, trace) => {
    const asked = decodeOrUndefined(node.failOpen, 'RunPodSandboxRequest', request);
    const made = decodeOrUndefined(node.failOpen, 'RunPodSandboxResponse', response);
    if (asked === undefined || made === undefined) return undefined;
    const pod = describeRequestedPod(made.pod_sandbox_id, asked);
    if (pod === undefined) return undefined;
    Object.assign(trace.fields, { pod: pod.sandboxId, uid: pod.metadata.uid });
    node.registry.learnPod(pod);
    // kubelet has mounted the volumes with its own sizes; the pod's annotations apply from its start.
    await applyVolumeSizes(node, pod);
    return undefined;
  };
}

/** RestorePod: adds the pod to the registry like {@link learnPod}, from the runtime's description. */
export function learnRestoredPod(node: Node): Amendment {
  return async ({ response }, trace) => {
    const made = decodeOrUndefined(node.failOpen, 'RestorePodResponse', response);
    if (made === undefined) return undefined;
    trace.fields.pod = made.pod_sandbox_id;
    try {
      const pod = await node.registry.pod(made.pod_sandbox_id);
      if (pod === undefined) return undefined;
      trace.fields.uid = pod.metadata.uid;
      await applyVolumeSizes(node, pod);
    } catch (error) {
      // The pod is restored even if it cannot be added: its client gets the response.
      node.failOpen('unknown_pod', made.pod_sandbox_id, error);
    }
    return undefined;
  };
}

/**
 * CreateContainer: adds the container to the registry, raises the pod limit for one that restarts with higher limits,
 * and sets the volumes whose size is a share of its limit.
 */
export function learnContainer(node: Node): Amendment {
  return async ({ request, response }, trace) => {
    const asked = decodeOrUndefined(node.failOpen, 'CreateContainerRequest', request);
    const made = decodeOrUndefined(node.failOpen, 'CreateContainerResponse', response);
    if (asked === undefined || made === undefined) return undefined;
    const { pod_sandbox_id: sandboxId, config } = asked;
    const { container_id: containerId } = made;
    const name = config?.metadata?.name ?? '';
    Object.assign(trace.fields, { pod: sandboxId, container: containerId });
    node.registry.learnContainer({ containerId, sandboxId, name });
    // The container is created but not started: the caller starts it after this response.
    await raisePodForRestart(node, sandboxId, containerId, name, config?.linux?.resources);
    const pod = node.registry.knownPod(sandboxId);
    if (pod !== undefined) await applyContainerShares(node, pod, name);
    return undefined;
  };
}

/**
 * StartContainer: notifies the registry of a requested start, until the call has ended. Does not observe calls with
 * compressed messages.
 */
export const startingContainer =
  (node: Node): Delay =>
  ({ request, onEnd }) => {
    const message = decodeOrUndefined(node.failOpen, 'StartContainerRequest', request);
    if (message !== undefined) onEnd(node.registry.containerStarts(message.container_id));
    return undefined;
  };

/** StartContainer: notifies the registry that the container has started. */
export const startContainer = (node: Node): Amendment =>
  observed(node, 'StartContainerRequest', ({ container_id }, trace) => {
    trace.fields.container = container_id;
    node.registry.containerStarted(container_id);
  });

/** RemovePodSandbox: removes the pod from the registry. */
export const forgetPod = (node: Node): Amendment =>
  observed(node, 'RemovePodSandboxRequest', ({ pod_sandbox_id }, trace) => {
    trace.fields.pod = pod_sandbox_id;
    node.registry.forgetPod(pod_sandbox_id);
  });

/** RemoveContainer: removes the container from the registry. */
export const forgetContainer = (node: Node): Amendment =>
  observed(node, 'RemoveContainerRequest', ({ container_id }, trace) => {
    trace.fields.container = container_id;
    node.registry.forgetContainer(container_id);
  });

/** Calls `action` with the request of a successful call. Skips a request that cannot be decoded. */
function observed<Name extends keyof Messages>(
  node: Node,
  name: Name,
  action: (request: Messages[Name], trace: Parameters<Amendment>[1]) => void,
): Amendment {
  return ({ request }, trace) => {
    const message = decodeOrUndefined(node.failOpen, name, request);
    if (message !== undefined) action(message, trace);
    return Promise.resolve(undefined);
  };
}
