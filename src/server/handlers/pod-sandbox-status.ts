import { withInfo } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { decodeOrUndefined } from './decode.ts';
import { type PodInfoParts, podInfo } from '../../resize/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';

export interface PodSandboxStatusParts extends PodInfoParts {
  /** Counts that a request goes on as it came, and says so once for each id and reason. */
  readonly failOpen: FailOpen;
}

/** The key under which a verbose status says what the shim knows. */
export const INFO_KEY = 'cri-resize-shim';

/** PodSandboxStatus: a verbose one also says how the pod's resizes went, as JSON. Otherwise not a byte changes. */
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
    // It has just gone, say: the runtime's own words stand.
    context.failOpen('unreadable_state', sandboxId, error);
    return undefined;
  }
}
