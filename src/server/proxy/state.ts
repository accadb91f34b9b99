/** Who closes a draining connection: the backend, which told the client to go, or we, when the streams have ended. */
export type Until = 'backend' | 'streams';

/**
 * A connection's life:
 * - `opening`: the backend has not sent its SETTINGS, and the client waits for them.
 * - `open`
 * - `refusing`: the backend cannot be reached; calls are answered UNAVAILABLE.
 * - `draining`: the client has been told to go (GOAWAY); streams up to the last one run to their end.
 * - `closing`: everything is said; what still comes is dropped.
 * - `closed`
 */
export type State =
  | { readonly kind: 'opening' }
  | { readonly kind: 'open' }
  | { readonly kind: 'refusing'; readonly message: string; readonly answers: Buffer[]; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'draining'; readonly lastStreamId: number; readonly until: Until }
  | { readonly kind: 'closing'; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'closed' };
