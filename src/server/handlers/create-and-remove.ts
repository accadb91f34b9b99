import { type Messages, describeRequestedPod } from '../../runtime/index.ts';
import type { Amendment, Delay } from './interceptors.ts';
import { decodeOrUndefined } from './forward.ts';
import {
  type AdmitRestartParts,
  type FailOpen,
  type PendingPodLimits,
  type Registry,
  type ResizeHistory,
  applyContainerShares,
  applyVolumeSizes,
  raisePodForRestart,
} from '../../sandbox/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';

export interface LearnParts extends AdmitRestartParts {
  /** kubelet's state files: a hint at what it requests next. */
  readonly kubelet: KubeletState;
  /** What those files said about pods in the middle of a resize, by sandbox id. */
  readonly pendingPodLimits: Map<string, PendingPodLimits>;
  readonly history: ResizeHistory;
  /** Timers of pods whose volumes grow when no more updates come, by sandbox id. */
  readonly growthTimers: Map<string, NodeJS.Timeout>;
}

/**
 * Calls that are only observed: the registry learns pods and containers when they are created, tells others when they start, and forgets
 * them when they are removed. They are amendments that change nothing, so the client gets its response only after the registry has been
 * updated.
 */

export function learnPod(context: LearnParts): Amendment {
  return async ({ request, response }, trace) => {
    const asked = decodeOrUndefined(context, 'RunPodSandboxRequest', request);
    const made = decodeOrUndefined(context, 'RunPodSandboxResponse', response);
    if (asked === undefined || made === undefined) return undefined;
    const pod = describeRequestedPod(made.pod_sandbox_id, asked);
    if (pod === undefined) return undefined;
    Object.assign(trace.fields, { pod: pod.sandboxId, uid: pod.metadata.uid });
    context.registry.learnPod(pod);
    // kubelet has mounted the volumes with its own sizes; the pod's annotations apply from its start.
    await applyVolumeSizes(context, pod);
    return undefined;
  };
}

/** RestorePod: learns the pod as {@link learnPod} does, by what the runtime says of it. */
export function learnRestoredPod(context: LearnParts): Amendment {
  return async ({ response }, trace) => {
    const made = decodeOrUndefined(context, 'RestorePodResponse', response);
    if (made === undefined) return undefined;
    trace.fields.pod = made.pod_sandbox_id;
    try {
      const pod = await context.registry.pod(made.pod_sandbox_id);
      if (pod === undefined) return undefined;
      trace.fields.uid = pod.metadata.uid;
      await applyVolumeSizes(context, pod);
    } catch (error) {
      // The pod is restored: its client gets the response.
      context.failOpen('unknown_pod', made.pod_sandbox_id, error);
    }
    return undefined;
  };
}

/**
 * CreateContainer: adds the container to the registry, raises the pod limit for one that restarts with higher limits, and sets the
 * volumes whose size is a share of its limit.
 */
export function learnContainer(context: LearnParts): Amendment {
  return async ({ request, response }, trace) => {
    const asked = decodeOrUndefined(context, 'CreateContainerRequest', request);
    const made = decodeOrUndefined(context, 'CreateContainerResponse', response);
    if (asked === undefined || made === undefined) return undefined;
    const { pod_sandbox_id: sandboxId, config } = asked;
    const { container_id: containerId } = made;
    const name = config?.metadata?.name ?? '';
    Object.assign(trace.fields, { pod: sandboxId, container: containerId });
    context.registry.learnContainer({ containerId, sandboxId, name });
    // The container is created but not started: the caller starts it after this response.
    await raisePodForRestart(context, sandboxId, containerId, name, config?.linux?.resources);
    const pod = context.registry.knownPod(sandboxId);
    if (pod !== undefined) await applyContainerShares(context, pod, name);
    return undefined;
  };
}

/**
 * StartContainer: tells the registry that a start has been requested, until the call has ended. A call with compressed messages is not
 * seen.
 */
export const startingContainer =
  (context: ObserveParts): Delay =>
  ({ request, onEnd }) => {
    const message = decodeOrUndefined(context, 'StartContainerRequest', request);
    if (message !== undefined) onEnd(context.registry.containerStarts(message.container_id));
    return undefined;
  };

/** StartContainer: notifies the registry that the container has started. */
export const startContainer = (context: ObserveParts): Amendment =>
  observed(context, 'StartContainerRequest', ({ container_id }, trace) => {
    trace.fields.container = container_id;
    context.registry.containerStarted(container_id);
  });

/** RemovePodSandbox: removes the pod from the registry. */
export const forgetPod = (context: ObserveParts): Amendment =>
  observed(context, 'RemovePodSandboxRequest', ({ pod_sandbox_id }, trace) => {
    trace.fields.pod = pod_sandbox_id;
    context.registry.forgetPod(pod_sandbox_id);
  });

/** RemoveContainer: removes the container from the registry. */
export const forgetContainer = (context: ObserveParts): Amendment =>
  observed(context, 'RemoveContainerRequest', ({ container_id }, trace) => {
    trace.fields.container = container_id;
    context.registry.forgetContainer(container_id);
  });

interface ObserveParts {
  readonly registry: Registry;
  readonly failOpen: FailOpen;
}

/** Calls `action` with the request of a call that has succeeded. A request that cannot be decoded is left out. */
function observed<Name extends keyof Messages>(
  context: ObserveParts,
  name: Name,
  action: (request: Messages[Name], trace: Parameters<Amendment>[1]) => void,
): Amendment {
  return ({ request }, trace) => {
    const message = decodeOrUndefined(context, name, request);
    if (message !== undefined) action(message, trace);
    return Promise.resolve(undefined);
  };
}
