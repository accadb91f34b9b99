import { describeRequestedPod } from '../../runtime/index.ts';
import { type Amendment, decodeOrUndefined } from './serving/index.ts';
import {
  type AdmitRestartParts,
  type PendingPodLimits,
  type ResizeHistory,
  applyVolumeSizes,
  raisePodForRestart,
} from '../../resize/index.ts';
import type { FailOpen, Registry } from '../../sandbox/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';

export interface LearnParts extends AdmitRestartParts {
  /** kubelet's state files: a hint at what it requests next. */
  readonly kubelet: KubeletState;
  /** What those files said about pods in the middle of a resize, by sandbox id. */
  readonly pendingPodLimits: Map<string, PendingPodLimits>;
  readonly history: ResizeHistory;
}

/**
 * Calls that are only observed: the registry learns pods and containers when they are created, and forgets them when
 * they are removed. They are amendments that change nothing, so the client gets its response only after the registry
 * has been updated.
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

export function learnContainer(context: AdmitRestartParts): Amendment {
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
    return undefined;
  };
}

export function forgetPod(context: { readonly registry: Registry; readonly failOpen: FailOpen }): Amendment {
  return ({ request }, trace) => {
    const removed = decodeOrUndefined(context, 'RemovePodSandboxRequest', request);
    if (removed !== undefined) {
      trace.fields.pod = removed.pod_sandbox_id;
      context.registry.forgetPod(removed.pod_sandbox_id);
    }
    return Promise.resolve(undefined);
  };
}

export function forgetContainer(context: { readonly registry: Registry; readonly failOpen: FailOpen }): Amendment {
  return ({ request }, trace) => {
    const removed = decodeOrUndefined(context, 'RemoveContainerRequest', request);
    if (removed !== undefined) {
      trace.fields.container = removed.container_id;
      context.registry.forgetContainer(removed.container_id);
    }
    return Promise.resolve(undefined);
  };
}
