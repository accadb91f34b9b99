import type { Route } from './interception.ts';

/** A side of the switch. */
export type Side = 'client' | 'backend' | 'local';

/**
 * How a stream ended, as the client saw it:
 * - `answered`: with its last frame from the server.
 * - `cancelled`: by the client, or because its connection went.
 * - `reset`: by the server, without a last frame.
 * - `unavailable`: by the switch, since the server was not there.
 */
export type Outcome = 'answered' | 'cancelled' | 'reset' | 'unavailable';

/** Why a response of an amend stream went as it came. */
export type SkipReason = 'request' | 'response' | 'memory' | 'slow' | 'failed';

/** What the switch reports: for counters and logs. Called in the middle of the work: must be quick, and not throw. */
export interface SwitchObserver {
  /** Whether {@link streamClosed} gets the grpc-status of all streams, not of amended ones alone: it has to be decoded for that. */
  readonly wantsStatus: boolean;
  connected(): void;
  /** The backend could not be reached, or went away. */
  backendLost(message: string): void;
  streamOpened(path: string, route: Route): void;
  /** @param milliseconds since it was opened */
  streamClosed(path: string, route: Route, outcome: Outcome, status: number | undefined, milliseconds: number): void;
  /** A side broke the protocol, and its connection was ended with this HTTP/2 error code. */
  protocolError(side: Side, code: number, message: string): void;
  /** @param error what {@link Interception.amend} threw, where the reason is `failed` */
  amendSkipped(path: string, reason: SkipReason, error: unknown): void;
  pingAnswered(side: Side): void;
}

function nothing(): void {
  // Nobody listens.
}

export const NO_OBSERVER: SwitchObserver = {
  wantsStatus: false,
  connected: nothing,
  backendLost: nothing,
  streamOpened: nothing,
  streamClosed: nothing,
  protocolError: nothing,
  amendSkipped: nothing,
  pingAnswered: nothing,
};
