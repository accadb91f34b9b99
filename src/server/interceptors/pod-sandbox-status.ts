import { withInfo } from '../../runtime/index.ts';
import { type ResizeContext, podInfo } from '../../sandbox/index.ts';
import type { Amendment } from '../routes.ts';
import { decodeOrUndefined } from './decode.ts';

/** The key under which a verbose status says what the shim knows. */
export const INFO_KEY = 'cri-resize-shim';

/** PodSandboxStatus: a verbose one also says how the pod's resizes went, as JSON. Otherwise not a byte changes. */
export function podSandboxStatus(context: ResizeContext): Amendment {
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
  context: ResizeContext,
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
