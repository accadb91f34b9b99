import type { HeaderField } from '../../http2/index.ts';
import { millisecondsOf } from '../grpc.ts';

/** A request whose headers leave nothing to decide. */
export interface PlainCall {
  /** All fields, in memory of their own: the call waits for its request. */
  readonly fields: readonly HeaderField[];
  /** Those without pseudo-header fields. Each name occurs once. */
  readonly headers: readonly HeaderField[];
  /** Milliseconds from the headers on; Infinity without a deadline. */
  readonly timeoutMs: number;
}

/** Header lists of CRI clients have a tenth of this. Both are below what a node:http2 server accepts. */
const MOST_FIELDS = 64;
const MOST_OCTETS = 16_384;
/** :method, :scheme, :path and :authority, each of which a node:http2 server requires. */
const PSEUDO_FIELDS = 4;
/** The longest time of a timer of Node, in milliseconds. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

const NAME = /^[a-z0-9_.-]+$/;
/** Visible ASCII, with spaces inside. */
const VALUE = /^[!-~](?:[ -~]*[!-~])?$/;
const TIMEOUT = /^\d{1,8}[HMSmun]$/;

/** Headers that HTTP/2 forbids, that a server checks against the request, and that the shim's gRPC servers use themselves. */
const UNUSUAL =
  /^(?:connection|content-length|cookie|expect|host|http2-settings|keep-alive|proxy-connection|transfer-encoding|upgrade|x-cri-resize-shim-.*)$/;

/**
 * Returns what a call needs from its headers if they are those of a plain gRPC call: POST, a gRPC content type, no compression, and
 * nothing that a server may refuse. Returns undefined for all others: the local server answers those, however malformed they are.
 */
export function plainCall(received: readonly HeaderField[]): PlainCall | undefined {
  if (received.length > MOST_FIELDS) return undefined;
  const fields: HeaderField[] = [];
  const values = new Map<string, string>();
  const headers: HeaderField[] = [];
  let octets = 0;
  for (const one of received) {
    const field = one.owned();
    const { name, value } = field;
    fields.push(field);
    octets += name.length + value.length;
    const isPseudo = name.startsWith(':');
    if (values.has(name) || (isPseudo ? headers.length > 0 : !NAME.test(name)) || !VALUE.test(value)) return undefined;
    values.set(name, value);
    if (isPseudo) continue;
    if (UNUSUAL.test(name)) return undefined;
    headers.push(field);
  }
  if (octets > MOST_OCTETS || fields.length - headers.length !== PSEUDO_FIELDS) return undefined;
  return isGrpcRequest(values) ? { fields, headers, timeoutMs: timeoutOf(values) } : undefined;
}

function isGrpcRequest(values: ReadonlyMap<string, string>): boolean {
  const scheme = values.get(':scheme');
  const timeout = values.get('grpc-timeout');
  return (
    values.get(':method') === 'POST' &&
    (scheme === 'http' || scheme === 'https') &&
    values.get(':path')?.startsWith('/') === true &&
    values.has(':authority') &&
    values.get('content-type')?.startsWith('application/grpc') === true &&
    (values.get('te') ?? 'trailers') === 'trailers' &&
    (values.get('grpc-encoding') ?? 'identity') === 'identity' &&
    (timeout === undefined || (TIMEOUT.test(timeout) && millisecondsOf(timeout) <= LONGEST_TIMEOUT_MS))
  );
}

/** Whole milliseconds, as the timer counts them. */
const timeoutOf = (values: ReadonlyMap<string, string>): number => {
  const timeout = values.get('grpc-timeout');
  return timeout === undefined ? Infinity : Math.floor(millisecondsOf(timeout));
};
