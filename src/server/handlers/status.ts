import type { ReadinessReport } from '../../observe/index.ts';
import { withInfo } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { decodeOrUndefined } from './decode.ts';
import { INFO_KEY } from './pod-sandbox-status.ts';
import type { FailOpen } from '../../sandbox/index.ts';

export interface Program {
  readonly version: string;
  /** Must not reject. */
  readonly readiness: () => Promise<ReadinessReport>;
  /** How many clients are connected to the CRI socket, the one that asks among them. */
  readonly connections: () => number;
}

/**
 * Status: a verbose one (`crictl info`) also says which shim answers, how many clients it has, and whether it can resize, as JSON. The
 * conditions that kubelet goes by are the runtime's own: a node that cannot resize for the moment is no node that is not ready.
 */
export function runtimeStatus(
  context: { readonly failOpen: FailOpen },
  { version, readiness, connections }: Program,
): Amendment {
  return ({ request, response }) => {
    const asked = decodeOrUndefined(context, 'StatusRequest', request);
    if (asked?.verbose !== true) return undefined;
    return readiness().then((report) =>
      withInfo(response, INFO_KEY, JSON.stringify({ version, connections: connections(), ...report })),
    );
  };
}
