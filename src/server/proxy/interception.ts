/**
 * The interface between the proxy, which knows frames, and the interceptors, which know CRI. Neither side knows
 * anything else of the other. An observer learns what happens on a connection.
 */

import type { CancelSignal } from '../../core/index.ts';

/**
 * - `pass`: frames are forwarded unchanged in both directions.
 * - `handle`: the stream ends in this process: {@link Handle} serves it, or the local gRPC server if it is not plain.
 * - `amend`: the request is forwarded and copied; the message of a successful unary response is held until
 *   {@link Interception.amend} has answered.
 * - `amend-each`: the request is forwarded; each message of the response is held until
 *   {@link Interception.amendMessage} has answered. For streams, which may stay open for hours.
 */
export type Route = 'pass' | 'handle' | 'amend' | 'amend-each';

export type MaybePromise<Result> = Result | Promise<Result>;

/** A unary call whose response has arrived and is held. Both messages are complete, without their gRPC prefix. */
export interface Exchange {
  /** For example `/runtime.v1.RuntimeService/ContainerStatus`. */
  readonly path: string;
  readonly request: Uint8Array;
  readonly response: Uint8Array;
  /** How long the backend took, in milliseconds. */
  readonly backendMs: number;
}

/**
 * Returns the response for the client. Undefined, or a rejection, sends the response as received; the proxy also counts
 * a rejection. Return a promise only if needed: most answers are known at once, and a promise costs a turn of the event
 * loop.
 */
export type Amend = (exchange: Exchange) => MaybePromise<Uint8Array | undefined>;

/** A call whose request is complete and held back. The message is without its gRPC prefix. */
export interface DelayedCall {
  readonly path: string;
  readonly request: Uint8Array;
  /** The timeout of the call (grpc-timeout) in milliseconds; Infinity without one. */
  readonly timeoutMs: number;
  /** Runs `action` once when the call is answered, failed, cancelled or disconnected. It must not throw. */
  readonly onEnd: (action: () => void) => void;
}

/** A unary call that is handled. Its request is complete. */
export interface HandledCall {
  readonly path: string;
  /** The request message, without its gRPC prefix. */
  readonly request: Buffer;
  /** The header fields of the request but pseudo-header fields. Each name occurs once. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  /** When the call has to have ended, in milliseconds by the connection's clock; Infinity without a deadline. */
  readonly deadline: number;
  /** Whether it has ended without an answer: the client cancelled it, its connection ended, or its deadline passed. */
  readonly cancelled: boolean;
  /** Aborted when it is {@link cancelled}. */
  readonly signal: CancelSignal;
}

/** The response message of a handled call, or the status that it fails with. */
export type HandledAnswer =
  | Buffer
  | {
      readonly code: number;
      readonly details: string;
      /** Trailers other than these two; values of names ending in `-bin` are in base64. */
      readonly trailers: readonly (readonly [name: string, value: string])[];
    };

/**
 * Serves a handled call. Must not throw.
 * @param respond takes the answer, once, but not before this function has returned. Ignored for a call that has ended
 */
export type Handle = (call: HandledCall, respond: (answer: HandledAnswer) => void) => void;

export interface Interception {
  /** Returns the route of a stream with this `:path`. Must not throw. */
  route(path: string): Route;
  /**
   * Whether {@link Handle} serves the plain calls of a handled path. The local server serves the calls of all others,
   * such as streams. Without this method, {@link Handle} serves all paths. Must not throw.
   */
  isUnary?(path: string): boolean;
  /** Whether a call never ends by itself: a shutdown does not wait for it. Without this method no call is a watch. */
  isWatch?(path: string): boolean;
  /** Whether {@link delay} decides when the request of a call that is not handled is forwarded. Must not throw. */
  isDelayed?(path: string): boolean;
  /**
   * Returns a promise that settles when the request may be forwarded; undefined if it may at once. The call's headers
   * are forwarded before. Must not throw.
   */
  delay?(call: DelayedCall): Promise<void> | undefined;
  /** Amends a response whose call {@link prepare} has not prepared. */
  readonly amend: Amend;
  /**
   * Prepares a call whose request has been written to the backend, while the backend works. Returns what amends its
   * response; undefined for {@link amend}. The response is part of memory that is used again: if what amends it returns
   * a promise, it has to copy the response first. Must not throw.
   */
  prepare?(path: string, request: Uint8Array): Amend | undefined;
  /**
   * Returns a message of a stream for the client, without its gRPC prefix. Undefined and rejections are as for
   * {@link amend}. The messages of one stream are amended one after the other.
   */
  amendMessage(path: string, message: Uint8Array): MaybePromise<Uint8Array | undefined>;
}

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
