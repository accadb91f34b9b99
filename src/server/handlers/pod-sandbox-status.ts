import { withInfo } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { decodeOrUndefined } from './decode.ts';
import { type PodInfoParts, podInfo } from '../../resize/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';

export interface PodSandboxStatusParts extends PodInfoParts {
  /** Counts calls that are forwarded unchanged because of an error, and logs each id and reason once. */
  readonly failOpen: FailOpen;
}

/** The key of the shim's part in the `info` of verbose responses. */
export const INFO_KEY = 'cri-resize-shim';

/**
 * Amends verbose PodSandboxStatus: adds the outcome of the pod's resizes as JSON. Otherwise the response is unchanged.
 */
export function podSandboxStatus(context: PodSandboxStatusParts): Amendment {
  return ({ request, response }, trace) => {
    const asked = decodeOrUndefined(context, 'PodSandboxStatusRequest', request);
    if (asked?.verbose !== true) return undefined;
    const sandboxId = decodeOrUndefined(context, 'PodSandboxStatusResponse', response)?.status?.id;
    if (sandboxId === undefined) return undefined;
    trace.fields.pod = sandboxId;
    return amended(context, sandboxId, response);
  };
}

async function amended(
  context: PodSandboxStatusParts,
  sandboxId: string,
  response: Uint8Array,
): Promise<Uint8Array | undefined> {
  try {
    return withInfo(response, INFO_KEY, JSON.stringify(await podInfo(context, sandboxId)));
  } catch (error) {
    // The pod may have just been removed. The runtime's own response is sent.
    context.failOpen('unreadable_state', sandboxId, error);
    return undefined;
  }
}
