import { Code, Reason, ShimError } from '../../core/index.ts';
import { invalid, type PodRef, type RequestedPod, type RequestedResources } from '../../sandbox/index.ts';
import { decodeRequest, type Requests } from './messages.ts';

/** Conversions from the wire format to the shim's types. All throw INVALID_VALUE with the field's path and value. */

const DEFAULT_TIMEOUT_MS = 30_000;
const LONGEST_TIMEOUT_MS = 600_000;
/**
 * Fits a pod with hundreds of containers ten times. Decoding blocks the event loop, so larger requests are rejected.
 */
export const LONGEST_REQUEST = 256 * 1024;

/** Decodes a request of the resize API. Throws INVALID_VALUE if it is too long or cannot be decoded. */
export function readRequest<Name extends keyof Requests>(name: Name, bytes: Buffer): Requests[Name] {
  if (bytes.length > LONGEST_REQUEST) {
    throw invalid(name, `${bytes.length} bytes`, `a request has at most ${LONGEST_REQUEST} bytes`);
  }
  try {
    return decodeRequest(name, bytes);
  } catch (error) {
    throw new ShimError(
      Code.INVALID_ARGUMENT,
      Reason.INVALID_VALUE,
      `${name}: cannot decode ${bytes.length} bytes`,
      { field: name },
      { cause: error },
    );
  }
}

/** Returns how a request names its pod. Throws INVALID_VALUE if it does not. */
export function readPodRef(pod: Requests['GetPodRequest']['pod']): PodRef {
  const { sandbox_id: id, uid, name } = pod ?? {};
  if (id !== undefined) return { by: 'sandbox_id', id };
  if (uid !== undefined) return { by: 'uid', uid };
  if (name) return { by: 'name', namespace: name.namespace, name: name.name };
  throw invalid('pod', '', 'expected sandbox_id, uid or name');
}

/** Returns the limits, requests and volume sizes that ResizePod asks for, as texts. */
export function readRequestedPod({ resources, containers, volumes }: Requests['ResizePodRequest']): RequestedPod {
  const asked = Object.entries(containers).map(([name, one]) => [name, readResources(one)] as const);
  return { pod: readResources(resources), containers: Object.fromEntries(asked), volumes };
}

function readResources(resources: Requests['ResizePodRequest']['resources']): RequestedResources {
  return { limits: readAmounts(resources?.limits), requests: readAmounts(resources?.requests) };
}

type Amounts = RequestedResources['limits'];

const readAmounts = (amounts: Amounts | null | undefined): Amounts => ({
  cpu: amounts?.cpu ?? '',
  memory: amounts?.memory ?? '',
});

export interface Terms {
  readonly dryRun: boolean;
  readonly defer: boolean;
  readonly timeoutMs: number;
}

/** Returns the terms of a ResizePod. Throws INVALID_VALUE for a timeout out of range. */
export function readTerms({ dry_run, defer, timeout }: Requests['ResizePodRequest']): Terms {
  return { dryRun: dry_run, defer, timeoutMs: readTimeout(timeout) };
}

function readTimeout(timeout: Requests['ResizePodRequest']['timeout']): number {
  if (timeout === null) return DEFAULT_TIMEOUT_MS;
  const { seconds, nanos } = timeout;
  const ms = Number(seconds) * 1000 + nanos / 1e6;
  if (ms > 0 && ms <= LONGEST_TIMEOUT_MS) return Math.ceil(ms);
  throw invalid('timeout', `${seconds}s ${nanos}ns`, `expected more than 0s and at most ${LONGEST_TIMEOUT_MS / 1000}s`);
}
