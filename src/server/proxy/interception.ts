/**
 * What the frame switch asks about a stream, and what it hands over. The switch knows frames, the interceptors know
 * CRI, and this file is all that they know of each other.
 */

/**
 * - `pass`: frames go to the backend and back as they are.
 * - `handle`: the stream ends in our own gRPC server, which may call the backend.
 * - `amend`: the stream passes, its request is read on the way, and of a successful unary response the message is held
 *   until {@link Interception.amend} has said what it shall be.
 */
export type Route = 'pass' | 'handle' | 'amend';

export type MaybePromise<Result> = Result | Promise<Result>;

/** A unary call whose response has arrived, and is held. Both messages are whole, without gRPC's prefix. */
export interface Exchange {
  /** `/runtime.v1.RuntimeService/ContainerStatus`, say. */
  readonly path: string;
  readonly request: Uint8Array;
  readonly response: Uint8Array;
  /** How long the backend took, in milliseconds. */
  readonly backendMs: number;
}

export interface Interception {
  /** What is done with a stream whose `:path` is this. Must not throw. */
  route(path: string): Route;
  /** Whether a call never ends by itself: a shutdown does not wait for it. None does without this. */
  isWatch?(path: string): boolean;
  /**
   * What goes to the client in the place of the response. Undefined, or a rejection, sends the response as it came; a
   * rejection is also counted by the switch. Without a promise where the answer is known at once: most are, and a promise
   * costs a turn of the event loop.
   */
  amend(exchange: Exchange): MaybePromise<Uint8Array | undefined>;
}
