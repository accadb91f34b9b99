import { Code } from '../core/grpc/index.ts';

/** The words of grpc-js 1.14 (subchannel-call.js) for a connection that ends during a call. */
const GRPC_JS_LOST = 'Connection dropped';
/** The words of grpc-go's client for it, which some programs match: containerd's tests do. */
const GRPC_GO_LOST = 'error reading from server: EOF';

/**
 * Corrects the status of a failed call in place:
 * - grpc-js hands over a `grpc-status` that is no number as the code NaN, without details. gRPC's clients take it for UNKNOWN
 *   (statuscodes.md of grpc).
 * - A call whose backend goes away gets the words of grpc-go's client.
 */
export function correctStatus(error: { code: number; details: string }): void {
  const { code, details }: { code: unknown; details: unknown } = error;
  if (!Number.isInteger(code)) error.code = Code.UNKNOWN;
  if (typeof details !== 'string') error.details = 'the backend ended the call with an invalid status';
  if (error.code === Code.UNAVAILABLE && error.details === GRPC_JS_LOST) error.details = GRPC_GO_LOST;
}
