import { infoEntry } from '../../runtime/index.ts';
import { type DecreaseReclaimer, type Node, podInfo } from '../../sandbox/index.ts';
import type { MaybePromise } from '../proxy/interception.ts';
import { withKernelValues } from './container-status.ts';
import { decodeOrUndefined } from './forward.ts';
import type { Amendment } from './interceptors.ts';

/** The key of the shim's part in the `info` of verbose responses. */
export const INFO_KEY = 'cri-resize-shim';

/** Field number of `containers_statuses` in PodSandboxStatusResponse (CRI v1). */
const CONTAINERS_STATUSES = 3;

/**
 * Amends PodSandboxStatus. The statuses of running containers, which runtimes with Evented PLEG add, get the kernel's
 * values. A verbose response gets the outcome of the pod's resizes as JSON. Otherwise the response is unchanged.
 */
export function podSandboxStatus(node: Node, decreaseReclaimer: DecreaseReclaimer): Amendment {
  return ({ request, response }, trace) => {
    const asked = decodeOrUndefined(node.failOpen, 'PodSandboxStatusRequest', request);
    const live = withKernelValues(node, 'PodSandboxStatusResponse', response, CONTAINERS_STATUSES);
    if (asked?.verbose !== true) return live;
    const sandboxId = decodeOrUndefined(node.failOpen, 'PodSandboxStatusResponse', response)?.status?.id;
    if (sandboxId === undefined) return live;
    trace.fields.pod = sandboxId;
    return withPodInfo(node, decreaseReclaimer, sandboxId, response, live);
  };
}

async function withPodInfo(
  node: Node,
  decreaseReclaimer: DecreaseReclaimer,
  sandboxId: string,
  response: Uint8Array,
  live: MaybePromise<Uint8Array | undefined>,
): Promise<Uint8Array | undefined> {
  const amended = await live;
  try {
    const info = JSON.stringify(await podInfo(node, decreaseReclaimer, sandboxId));
    return Buffer.concat([amended ?? response, infoEntry(INFO_KEY, info)]);
  } catch (error) {
    // The pod may have just been removed. The response is sent without its resizes.
    node.failOpen('unreadable_state', sandboxId, error);
    return amended;
  }
}
