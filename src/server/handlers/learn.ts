import { describeRequestedPod } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { decodeOrUndefined } from './decode.ts';
import {
  type AdmitRestartParts,
  type PendingPodLimits,
  applyVolumeSizes,
  raisePodForRestart,
} from '../../resize/index.ts';
import type { FailOpen, Registry } from '../../sandbox/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';

export interface LearnParts extends AdmitRestartParts {
  /** What kubelet has written of its pods: a hint at what it is about to ask for. */
  readonly kubelet: KubeletState;
  /** What that came to for pods in the middle of a resize, by sandbox id. */
  readonly pendingPodLimits: Map<string, PendingPodLimits>;
}

/**
 * Calls that are only watched: pods and containers are learned as they are made, and forgotten as they are removed. They
 * are amendments that add nothing, so the client has its answer only when the shim knows what the client knows.
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
    // kubelet has mounted the volumes by its own rules; the pod's annotations hold from its start.
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
    // It is made and not started: its caller starts it when it has this answer.
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
