import type { Route } from './interception.ts';

/** A side of the proxy. */
export type Side = 'client' | 'backend' | 'local';

/**
 * How a stream ended, as the client saw it:
 * - `answered`: with the server's last frame.
 * - `cancelled`: by the client, or with its connection.
 * - `reset`: by the server, without a last frame.
 * - `unavailable`: by the proxy, because the server was gone.
 */
export type Outcome = 'answered' | 'cancelled' | 'reset' | 'unavailable';

/**
 * Why a response was not amended:
 * - `request`, `response`: the message was compressed, too long, incomplete, or one of several.
 * - `memory`: the total of held messages reached its limit.
 * - `slow`: the amendment took longer than its timeout.
 * - `failed`: the amendment threw or rejected.
 */
export type SkipReason = 'request' | 'response' | 'memory' | 'slow' | 'failed';

/**
 * Receives the proxy's events, for counters and logs. Called synchronously on the hot path: must be quick and not
 * throw.
 */
export interface ProxyObserver {
  /** Whether {@link streamClosed} needs the grpc-status of all streams, not only of amended ones. It costs decoding. */
  readonly wantsStatus: boolean;
  /** The backend has sent its SETTINGS. */
  connected(): void;
  /** The backend could not be reached, or closed its connection. */
  backendLost(message: string): void;
  /** The backend could not be reached because this process has no free file descriptor. */
  noDescriptor(message: string): void;
  streamOpened(path: string, route: Route): void;
  /** @param milliseconds since it was opened */
  streamClosed(path: string, route: Route, outcome: Outcome, status: number | undefined, milliseconds: number): void;
  /** A side broke the protocol, and its connection was ended with this HTTP/2 error code. */
  protocolError(side: Side, code: number, message: string): void;
  /** @param error what {@link Interception.amend} threw, for the reason `failed` */
  amendSkipped(path: string, reason: SkipReason, error: unknown): void;
  pingAnswered(side: Side): void;
  /** Something was refused because a budget was used up. */
  refused(budget: 'streams' | 'handshake' | 'lingering' | 'handled_calls' | 'requests'): void;
}

function nothing(): void {
  // No observer.
}

export const NO_OBSERVER: ProxyObserver = {
  wantsStatus: false,
  connected: nothing,
  backendLost: nothing,
  noDescriptor: nothing,
  streamOpened: nothing,
  streamClosed: nothing,
  protocolError: nothing,
  amendSkipped: nothing,
  pingAnswered: nothing,
  refused: nothing,
};
