import type { ReadinessReport } from '../../observe/index.ts';
import { withInfo } from '../../runtime/index.ts';
import { type Amendment, decodeOrUndefined } from './serving/index.ts';
import { INFO_KEY } from './pod-sandbox-status.ts';
import type { FailOpen } from '../../sandbox/index.ts';

export interface Program {
  readonly version: string;
  /** Must not reject. */
  readonly readiness: () => Promise<ReadinessReport>;
  /** The number of clients connected to the CRI socket, including the caller. */
  readonly connections: () => number;
}

/**
 * Amends verbose Status (`crictl info`): adds the shim's version, its number of clients, and whether it can resize, as
 * JSON. The conditions that kubelet evaluates stay the runtime's: a node that cannot resize for the moment is still
 * Ready.
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
