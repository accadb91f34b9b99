/** A unary call, with its request message encoded: at most what goes into one frame. */
export interface Call {
  readonly path: string;
  readonly request: Uint8Array;
}

/** Told once for each call: why it failed, if it did. */
export type Done = (error: Error | undefined) => void;

/** One connection to one server. */
export interface BenchClient {
  start(call: Call, done: Done): void;
  /** One call by itself: its response message, without gRPC's prefix. */
  call(call: Call): Promise<Buffer>;
  close(): void;
}

/**
 * What makes the calls. Its own cost is part of both sides of every ratio.
 * - `grpc-js`: an ordinary client, by the library that clients of the shim in Node are written with.
 * - `frames`: as little as possible, so that nothing hides what the shim adds: no client that anyone uses is as quick.
 * kubelet's grpc-go lies between.
 */
export type ClientKind = 'grpc-js' | 'frames';
